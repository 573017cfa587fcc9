"""Starts the programs of the stand-in, outside of what ends all that an attempt has started (unbroken.program.guard).

An image of the stand-in is a process, and outlives the attempt that made it, as a file would.  So the program whose
fork it is must not descend from the attempt: a process in its place asks for it here, hands over its files, and ends
as it ends.

    nursery.py OWNER SOCKET     until the process OWNER is gone; SOCKET: the number of the one that listens
"""

import contextlib
import json
import os
import select
import socket
import sys


def main(owner, number):
    server = socket.socket(fileno=number)
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
            others = [server.fileno(), end, *map(socket.socket.fileno, places.values())]
            places[start(place, others)] = place


def start(place, others):
    """The new process hears what it is to be: who asks may be stopped or killed before he says it."""
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        for number in others:
            os.close(number)
        data, files, _, _ = socket.recv_fds(place, 1 << 20, 3)
        if not data:
            os._exit(127)
        told = json.loads(data)
        for number, file in enumerate(files):
            os.dup2(file, number)
        for file in files:
            os.close(file)
        os.set_inheritable(place.fileno(), True)
        os.chdir(told["folder"])
        os.execve(told["program"], told["words"], {**told["environment"], "STAND_IN_PLACE": str(place.fileno())})
    finally:
        os._exit(127)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
