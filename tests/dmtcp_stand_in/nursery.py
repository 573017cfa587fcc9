"""Starts the programs of the stand-in, outside of what ends all that an attempt has started (longhaul.guard).

An image of the stand-in is a process, and outlives the attempt that made it, as a file would.  So the program whose
fork it is must not descend from the attempt: a process in its place asks for it here, hands over its files, and ends
as it ends.

    nursery.py OWNER        until the process OWNER is gone
"""

import contextlib
import json
import os
import select
import socket
import sys


def address_of(owner):
    return f"\0dmtcp-stand-in-nursery-{owner}"


def main(owner):
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    server.bind(address_of(owner))
    server.listen(64)
    end = os.pidfd_open(owner)
    places = {}
    while True:
        ready, _, _ = select.select([server, end], [], [], 0.02 if places else None)
        if end in ready:
            os._exit(0)
        while places and (done := os.waitpid(-1, os.WNOHANG))[0]:
            place = places.pop(done[0])
            with contextlib.suppress(OSError):
                place.sendall(f"{os.waitstatus_to_exitcode(done[1])}\n".encode())
            place.close()
        if server in ready:
            place, _ = server.accept()
            data, files, _, _ = socket.recv_fds(place, 1 << 20, 3)
            places[
                start(
                    place, json.loads(data), files, [server.fileno(), end, *map(socket.socket.fileno, places.values())]
                )
            ] = place
            for number in files:
                os.close(number)


def start(place, told, files, others):
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        kept = place.fileno()
        for number in others:
            os.close(number)
        for number, file in enumerate(files):
            os.dup2(file, number)
        for file in files:
            os.close(file)
        os.set_inheritable(kept, True)
        os.chdir(told["folder"])
        os.execve(told["program"], told["words"], {**told["environment"], "STAND_IN_PLACE": str(kept)})
    finally:
        os._exit(127)


if __name__ == "__main__":
    main(int(sys.argv[1]))
