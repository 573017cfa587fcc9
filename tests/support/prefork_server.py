"""Forks Python programs from one process that has loaded their libraries (prefork.py): FD MODULE[:FUNCTION] ...

A child stands at the top of this file when it runs its program, so that it ends as any Python program does.
"""

import array
import contextlib
import gc
import importlib
import json
import os
import random
import runpy
import selectors
import signal
import socket
import sys


def serve(control: socket.socket) -> list[str]:
    """Forks what it is asked to; returns in each child, with the words of its program."""
    here = selectors.DefaultSelector()
    here.register(control, selectors.EVENT_READ)
    while True:
        for key, _ in here.select():
            if key.fileobj is not control:
                _tell_end(here, key)
                continue
            request, (output, told) = _receive(control)
            if not request:
                os._exit(0)  # whoever asked is gone
            pid = os.fork()
            if pid == 0:
                here.close()
                return _become(request, output)
            os.close(output)
            # Opened here, because the number may belong to nobody once we have waited for the process.
            handle = os.pidfd_open(pid)
            with socket.socket(fileno=os.dup(told)) as answer, contextlib.suppress(BrokenPipeError):
                socket.send_fds(answer, [str(pid).encode()], [handle])
            here.register(handle, selectors.EVENT_READ, (pid, told))


def _receive(control: socket.socket) -> tuple[dict, tuple[int, int]]:
    text, rights, _, _ = control.recvmsg(1 << 20, socket.CMSG_SPACE(8))
    if not text:
        return {}, (0, 0)
    numbers = array.array("i", rights[0][2])
    return json.loads(text), (numbers[0], numbers[1])


def _tell_end(here: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
    pid, told = key.data
    here.unregister(key.fileobj)
    _, status = os.waitpid(pid, 0)
    with contextlib.suppress(BrokenPipeError):  # nobody waits for it any more
        os.write(told, str(os.waitstatus_to_exitcode(status)).encode())
    os.close(told)
    os.close(key.fd)


def _become(request: dict, output: int) -> list[str]:
    """Makes of this fork what a new process would be."""
    os.setsid()
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.closerange(3, 1 << 16)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    random.seed()
    return request["words"]


def main() -> None:
    """Loads the modules, serves, and runs a program in each fork."""
    number, *modules = sys.argv[1:]
    for module in modules:
        name, _, function = module.partition(":")
        loaded = importlib.import_module(name)
        if function:
            getattr(loaded, function)()
    # Else each fork looks through all of it once more at its end, and copies it for that: 0.4 s, with torch 0.8 s.
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    entry, *words = serve(socket.socket(fileno=int(number)))
    sys.argv = words
    if ":" in entry:
        module, _, function = entry.partition(":")
        sys.exit(getattr(sys.modules[module], function)())
    sys.path[0] = os.path.dirname(entry)
    sys.argv = [entry, *words]
    runpy.run_path(entry, run_name="__main__")


if __name__ == "__main__":
    main()
