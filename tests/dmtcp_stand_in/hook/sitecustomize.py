"""Inside a program under the stand-in: freezes forks of it as its images, and wakes them.  See stand_in.py."""

import contextlib
import json
import os
import select
import signal
import socket
import sys
import threading
import time
import traceback
import uuid
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from stand_in import FAILED, connect, draft_of, write_image

sys.path.pop(0)
# A frozen process goes when its image is gone, which may be for moments only while it is compressed; and with the
# tests, whose process $STAND_IN_OWNER names.
GRACE_SECONDS = 120.0
LONGEST_SECONDS = 900.0


class Program:
    """This process, as the coordinator knows it."""

    def __init__(self) -> None:
        self.name = f"python_{uuid.uuid4().hex[:8]}"
        self.may_go_on = threading.Event()
        signal.signal(signal.SIGUSR2, self._write)

    def join(self, port: int, images: str) -> None:
        self.images, self.line = images, connect(port)
        self.line.send(what="join", pid=os.getpid(), name=self.name, is_agent=False)
        threading.Thread(target=self._listen, args=(self.line,), daemon=True).start()

    def _listen(self, line) -> None:
        """In a thread: the program itself is busy."""
        while True:
            messages = line.receive()
            if messages is None:
                os._exit(FAILED)  # the coordinator was killed
            for message in messages:
                if message["what"] == "leave":
                    os._exit(0)
                if message["what"] == "write":
                    os.kill(os.getpid(), signal.SIGUSR2)
                if message["what"] == "go_on":
                    self.may_go_on.set()

    def _write(self, number, frame) -> None:
        """In the program's own thread: a fork of it stays as it is now; on return it is the program, here or woken."""
        address = f"dmtcp-stand-in-{uuid.uuid4().hex}"
        saved = Path(self.images) / f"ckpt_{self.name}_files" / "saved"
        saved.parent.mkdir(exist_ok=True)
        saved.write_text("a copy of an open file, as DMTCP keeps some\n")
        files, folder = open_files(), os.getcwd()
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        server.bind("\0" + address)
        server.listen()
        image_file = os.open(draft_of(self.images, self.name), os.O_RDONLY | os.O_CREAT, 0o644)
        if os.fork() == 0:
            self.line.sock.close()
            wake = frozen(server, image_file)
            os.chdir(wake["folder"])
            reopen(files, folder, wake["fds"])
            if not saved.exists():
                print(f"Unable to find checkpointed copy of file {saved}", file=sys.stderr, flush=True)
                os._exit(FAILED)
            self.join(wake["port"], wake["images"])
            return
        server.close()
        os.close(image_file)
        rest_seconds = float(os.environ.get("STAND_IN_WRITE_SECONDS", "0"))
        known = (str(saved), *(path for path, _, _ in files.values()), *filter(os.path.isabs, sys.orig_argv))
        image = write_image(self.images, self.name, {"name": self.name, "address": address}, rest_seconds, known)
        if not image:
            os._exit(FAILED)
        self.may_go_on.clear()
        self.line.send(what="done", image=image)
        self.may_go_on.wait()  # or the thread ends us


def frozen(server, image_file: int) -> dict:
    """Waits to be woken; returns in a fork of the frozen process, as often as that happens."""
    os.setsid()
    void = os.open(os.devnull, os.O_RDWR)
    for number in [int(name) for name in os.listdir("/proc/self/fd")]:
        if number not in (server.fileno(), image_file, void):
            with contextlib.suppress(OSError):
                os.dup2(void, number)  # the number stays taken
    owner = owner_end()
    began = gone_since = time.monotonic()
    places = {}
    while True:
        ready, _, _ = select.select([server, *owner], [], [], 0.5)
        now = time.monotonic()
        for pid in list(places):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                code = os.waitstatus_to_exitcode(status)
                with contextlib.suppress(OSError):
                    places[pid].sendall(f"{code}\n".encode())
                places.pop(pid).close()
        if os.fstat(image_file).st_nlink:
            gone_since = now
        is_needless = now - gone_since > GRACE_SECONDS or now - began > LONGEST_SECONDS
        if (is_needless and not places) or set(ready) & set(owner):
            os._exit(0)
        if server not in ready:
            continue
        place, _ = server.accept()
        data, fds, _, _ = socket.recv_fds(place, 65536, 3)
        pid = os.fork()
        if pid:
            places[pid] = place
            for number in fds:
                os.close(number)
            continue
        for number in [image_file, void, *owner]:
            os.close(number)
        for other in [server, *places.values()]:
            other.close()
        threading.Thread(target=end_with, args=(place,), daemon=True).start()
        return {**json.loads(data), "fds": fds}


def owner_end() -> list[int]:
    """To be waited for: readable once the tests are over; empty where nobody says whose they are."""
    pid = int(os.environ.get("STAND_IN_OWNER", "0"))
    if not pid:
        return []
    try:
        return [os.pidfd_open(pid)]
    except ProcessLookupError:
        os._exit(0)


def end_with(place) -> None:
    """A woken program does not outlive the process that stands for it."""
    with contextlib.suppress(OSError):
        place.recv(1)
    os._exit(FAILED)


def open_files() -> dict:
    """Of each regular file: its path, where in it we are, and how it was opened."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            path = os.readlink(f"/proc/self/fd/{name}")
            info = Path(f"/proc/self/fdinfo/{name}").read_text()
            fields = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
            if os.path.isfile(path):
                found[int(name)] = (path, int(fields["pos"]), int(fields["flags"], 8))
    return found


def reopen(files: dict, folder: str, standard: list) -> None:
    """Cut back to where we were; NUL bytes up to there where a file is gone.

    Under their whole old paths, where they are; else one of the old folder by its name in the one that is now.
    """
    for number in standard:
        os.set_inheritable(number, True)
    spare = [os.dup2(number, 200 + count) for count, number in enumerate(standard)]
    for number, copy in enumerate(spare):
        if number not in files:
            os.dup2(copy, number)
    for copy in spare:
        os.close(copy)
    for number, (path, position, flags) in files.items():
        here = path.removeprefix(f"{folder}/")
        path = here if not os.path.exists(path) and os.path.exists(here) else path
        is_read = flags & os.O_ACCMODE == os.O_RDONLY
        flags &= ~(os.O_TRUNC | os.O_EXCL)
        new = os.open(path, flags if is_read else flags | os.O_CREAT, 0o644)
        if not is_read:
            os.truncate(path, position)
        os.lseek(new, position, os.SEEK_SET)
        os.dup2(new, number)
        if new not in files:
            os.close(new)


def stand_for(place, told: dict) -> None:
    """This process is the program's place among its parent's children, and ends as it ends."""
    socket.send_fds(place, [json.dumps(told).encode()], [0, 1, 2])
    text = place.recv(64)
    code = int(text) if text else FAILED
    os._exit(code if code >= 0 else 128 - code)


def stand_for_woken(address: str) -> None:
    place = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    place.connect("\0" + address)
    told = {"port": int(os.environ["STAND_IN_PORT"]), "images": os.environ["STAND_IN_IMAGES"], "folder": os.getcwd()}
    stand_for(place, told)


def stand_for_new(address: str) -> None:
    place = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    place.connect("\0" + address)
    told = {"program": sys.executable, "words": sys.orig_argv, "folder": os.getcwd(), "environment": dict(os.environ)}
    stand_for(place, told)


def begin() -> None:
    """As the program itself, started by the nursery."""
    place = socket.socket(fileno=int(os.environ.pop("STAND_IN_PLACE")))
    place.set_inheritable(False)
    threading.Thread(target=end_with, args=(place,), daemon=True).start()
    Program().join(int(os.environ["STAND_IN_PORT"]), os.environ["STAND_IN_IMAGES"])


try:
    if woken := os.environ.pop("STAND_IN_WAKE", ""):
        stand_for_woken(woken.split()[0])
    elif "STAND_IN_PLACE" in os.environ:
        begin()
    elif "STAND_IN_PORT" in os.environ:
        stand_for_new(os.environ["STAND_IN_NURSERY"])
except (LookupError, OSError, ValueError):
    # Python would go on with the program itself, which nobody could save.
    traceback.print_exc()
    os._exit(FAILED)
