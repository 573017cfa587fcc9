#!/usr/bin/env python3
"""A stand-in for DMTCP, for machines that have none: the same command lines, files, exit codes, and traps.

It can checkpoint a shell that runs one Python program with one thread, unmodified.  The program's image is a frozen
fork of it: memory, stack and all, woken as often as its image is restarted (hook/sitecustomize.py).  A shell has no
state besides waiting for its program, so it is started anew.  Real processes, real files, real signals; what is not
real: an image holds no memory, only the address of the frozen process, which lives as long as the image does.

The folder through which a program is started says which release it plays.  Each behaviour is a row of what was
measured with the releases 3.2.0, 4.1.1 and 5.0 (development); tests/engines/test_dmtcp_contract.py checks it on both.

| row                                             | where                                                              |
|-------------------------------------------------|--------------------------------------------------------------------|
| free port, port file, exits with the last peer  | Coordinator                                                        |
| status: NUM_PEERS, RUNNING; no coordinator: 2   | Coordinator._answer, command                                       |
| kcheckpoint: exit code 2 (3.2, 4.1), 0 (5.0)    | command; none waits for the images                                 |
| kcheckpoint during a write: lost (4.1.1)        | Coordinator._begin                                                 |
| bcheckpoint: returns at once (4.1.1) or waits   | Coordinator._answer                                                |
| image under another name until it is whole      | write_image                                                        |
| kill during a write leaves *.temp               | Coordinator._kill                                                  |
| restart script once all images are whole        | Coordinator._written; with kcheckpoint 3.2 writes none             |
| says what it does: saves, kills, leaves         | Coordinator._note, in the same words in all releases               |
| quit: the program dies first, with 0, and its   | Coordinator._quit; seen with 4.1.1, where it is a matter of chance |
|   shell may live long enough to note that       |                                                                    |
| full disk: 99, *.temp stays                     | write_image, where $STAND_IN_FULL exists                           |
| a hang: some processes never at work again      | Coordinator._answer, while $STAND_IN_HANG exists                   |
| 0 after checkpoint-and-kill, kill and quit      | agent                                                              |
| the program's exit code passes through          | agent                                                              |
| a process ends after its connection: seconds    | agent, $STAND_IN_LEAVE_SECONDS; a matter of chance with all        |
| coordinator killed: everybody ends with 99      | agent, hook                                                        |
| image missing or empty: 99                      | restart                                                            |
| image cut short: hangs                          | restart                                                            |
| a flipped byte is not seen                      | read_image looks at sizes alone                                    |
| an image may be compressed with gzip            | read_image                                                         |
| files: cut back, NUL bytes if gone              | hook                                                               |
| works where dmtcp_restart was started; a file   | hook, restart: measured with 4.2.0                                 |
|   is opened under its whole old path if that is |                                                                    |
|   there, else by its name in the working folder |                                                                    |
| an image knows whole paths, of itself too; ends | write_image: 4.2.0's head and end mark                             |
|   with a mark                                   |                                                                    |
| compressed with gzip, unless DMTCP_GZIP is 0    | write_image; the real one's gzip may write on after the rename     |
| copies beside the image are sought at the path  | hook: found with the real one, when images were moved              |
|   that they were written to                     |                                                                    |

Differs: process ids change over a restart, and dmtcp_launch stays the parent of the program.
"""

from __future__ import annotations

import ctypes
import gzip
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path

RELEASE = Path(sys.argv[0]).absolute().parent.name
FAILED = 99
PADDING = 200_000
HEAD = b"DMTCP_CHECKPOINT_IMAGE_v4.0\n"
# A header of memory of no address and the size -1.
END = bytes(16) + b"\xff" * 8 + bytes(4072)
HOOK = Path(__file__).resolve().parent / "hook"
PR_SET_PDEATHSIG = 1


# --- images ---


def draft_of(folder: str, name: str) -> str:
    """The file that becomes the image, while it is written."""
    return str(Path(folder) / f"ckpt_{name}.dmtcp.temp")


def write_image(folder: str, name: str, header: dict, rest_seconds: float = 0, paths: tuple[str, ...] = ()) -> str:
    """Draft, then the real name; `paths` are what its process knows besides."""
    path = Path(folder) / f"ckpt_{name}.dmtcp"
    known = [str(path), os.getcwd(), *paths]
    memory = b"".join(os.fsencode(each) + b"\0" for each in known) + os.urandom(PADDING)
    data = HEAD + json.dumps({**header, "size": len(memory) + len(END)}).encode() + b"\n"
    is_compressed = os.environ.get("DMTCP_GZIP", "1") != "0"
    with open(draft_of(folder, name), "wb") as draft, gzip.open(draft, "wb", 1) if is_compressed else draft as file:
        file.write(data)
        file.flush()
        time.sleep(rest_seconds)
        if is_told("STAND_IN_FULL"):
            print(f"ASSERT: failed to write checkpoint data: {draft_of(folder, name)}", file=sys.stderr, flush=True)
            return ""
        file.write(memory + END)
    os.rename(draft_of(folder, name), path)
    return str(path)


def is_told(name: str) -> bool:
    """True while the file exists that the variable names: a test's switch."""
    return os.path.exists(os.environ.get(name) or "/nonexistent")


def read_image(path: str) -> dict:
    """The header; hangs if the image is cut short, ends with 99 if there is nothing."""
    if not os.path.exists(path) or os.path.getsize(path) == 0:
        print(f"dmtcp_restart: {path}: no image", file=sys.stderr)
        sys.exit(FAILED)
    raw = Path(path).read_bytes()
    try:
        plain = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
        head, _, padding = plain.removeprefix(HEAD).partition(b"\n")
        header = json.loads(head)
        is_whole = len(padding) == header["size"]
    except (EOFError, ValueError):
        is_whole = False
    while not is_whole:
        time.sleep(60)
    return header


# --- the line between coordinator and processes ---


class Line:
    """JSON lines over a socket."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock, self._rest = sock, b""

    def send(self, **message: object) -> None:
        try:
            self.sock.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            return

    def receive(self) -> list[dict] | None:
        """What has come; None once the other side is gone."""
        try:
            data = self.sock.recv(65536)
        except OSError:
            return None
        if not data:
            return None
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [json.loads(line) for line in lines]


def connect(port: int) -> Line:
    return Line(socket.create_connection(("127.0.0.1", port)))


class Coordinator:
    def __init__(self, options: dict) -> None:
        self.options = options
        self.listener = socket.create_server(("127.0.0.1", int(options["coord-port"])))
        self.peers: dict[Line, dict] = {}
        self.others: list[Line] = []
        self.blocked: list[Line] = []
        self.expected = 0
        self.phase, self.waiting, self.images, self.kills = "", set(), [], False
        self.has_had_peers = self.has_had_program = self.is_quitting = False
        port_file = options["port-file"]
        Path(port_file + ".new").write_text(f"{self.listener.getsockname()[1]}\n")
        os.rename(port_file + ".new", port_file)
        signal.signal(signal.SIGINT, lambda number, frame: self._quit())

    def _note(self, words: str) -> None:
        if os.environ.get("DMTCP_QUIET", "0") == "0":
            print("NOTE:", words, flush=True)

    def run(self) -> None:
        while not (self.has_had_peers and not self.peers):
            lines = {line.sock: line for line in [*self.peers, *self.others]}
            ready, _, _ = select.select([self.listener, *lines], [], [])
            for sock in ready:
                if sock is self.listener:
                    self.others.append(Line(sock.accept()[0]))
                else:
                    self._hear(lines[sock])
        if not self.is_quitting:
            self._note("last client exited, shutting down..")
            self._note("killing all connected peers and quitting ...")

    def _hear(self, line: Line) -> None:
        messages = line.receive()
        if messages is None:
            line.sock.close()
            self.peers.pop(line, None)
            self.others = [other for other in self.others if other is not line]
            self._forget(line)
            return
        for message in messages:
            getattr(self, "_on_" + message.pop("what"))(line, **message)

    def _forget(self, line: Line) -> None:
        """Somebody who is gone is not waited for; his image counts if he wrote it."""
        if line in self.waiting:
            self.waiting.discard(line)
            self.images.append("")  # never complete
            self._next()

    def _on_join(self, line: Line, pid: int, name: str, is_agent: bool, expected: int = 0) -> None:
        self.others = [other for other in self.others if other is not line]
        self.peers[line] = {"pid": pid, "name": name, "is_agent": is_agent}
        self.expected = max(self.expected, expected)
        self.has_had_peers = True
        self.has_had_program = self.has_had_program or not is_agent

    def _on_command(self, line: Line, request: str) -> None:
        self._answer(line, request)

    def _answer(self, line: Line, request: str) -> None:
        if request == "status":
            is_running = self.peers and not self.phase and len(self.peers) >= self.expected
            running = "yes" if is_running and not is_told("STAND_IN_HANG") else "no"
            line.send(text=f"Status...\n  NUM_PEERS={len(self.peers)}\n  RUNNING={running}\n")
        elif request == "list":
            rows = [f"1, {p['name']}[40000:{p['pid']}]@here, x, WorkerState::RUNNING, " for p in self.peers.values()]
            line.send(text="Client List:\n" + "\n".join(rows) + "\n")
        elif request == "kill":
            self._note("Killing all connected peers...")
            self._kill()
            line.send(text="")
        elif request == "quit":
            self._quit()
            line.send(text="")
        elif request == "bcheckpoint" and RELEASE == "5.0":
            self.blocked.append(line)
            self._begin(kills=False)
        else:
            self._begin(kills=request == "kcheckpoint")
            line.send(text="")

    def _begin(self, kills: bool) -> None:
        """Agents stop their shells first, so that none goes on when its program is gone."""
        if self.phase or not self.peers or self._is_about_to_end():
            return
        self.phase, self.kills, self.images = "stop", kills, []
        if is_told("STAND_IN_HANG"):
            return
        self._note(f"starting checkpoint; suspending all nodes: numPeers={len(self.peers)} generation=1")
        self._tell("stop", [line for line, peer in self.peers.items() if peer["is_agent"]])

    def _is_about_to_end(self) -> bool:
        """True if the program is gone and its shell not yet; the image of a shell alone would start it anew."""
        return self.has_had_program and all(peer["is_agent"] for peer in self.peers.values())

    def _was_faster(self) -> bool:
        """True if the program came to its end before it was saved; one that dies of its save leaves a draft."""
        return self._is_about_to_end() and not any(Path(self.options["ckptdir"]).glob("*.temp"))

    def _tell(self, what: str, lines: list[Line]) -> None:
        self.waiting = set(lines)
        for line in lines:
            line.send(what=what, kills=self.kills)
        self._next()

    def _on_done(self, line: Line, image: str = "") -> None:
        self.waiting.discard(line)
        if image:
            self.images.append(image)
        self._next()

    def _next(self) -> None:
        """Agents write last: the shell of a program that comes to its end meanwhile goes on, and notes that."""
        if self.waiting:
            return
        agents = [line for line, peer in self.peers.items() if peer["is_agent"]]
        if self.phase in ("stop", "write") and self._was_faster():
            self.phase = ""
            for agent in agents:
                agent.send(what="go_on")
        elif self.phase == "stop":
            self.phase = "write"
            self._tell("write", [line for line in self.peers if line not in agents])
        elif self.phase == "write":
            self.phase = "write agents"
            self._tell("write", agents)
        elif self.phase == "write agents":
            self._written()

    def _written(self) -> None:
        if "" not in self.images and not (self.kills and RELEASE == "3.2.0"):
            script = Path(self.options["ckptdir"]) / f"dmtcp_restart_script_{uuid.uuid4().hex}.sh"
            script.write_text(f'#!/bin/sh\ngiven_ckpt_files=" {" ".join(self.images)}"\n')
        self.phase = ""
        self.expected = 0
        for line in self.peers:
            line.send(what="leave" if self.kills else "go_on")
        for line in self.blocked:
            line.send(text="")
        self.blocked = []

    def _quit(self) -> None:
        """Programs first, of which their shells hear by their exit code."""
        self.is_quitting = True
        self._note("killing all connected peers and quitting ...")
        for line, peer in self.peers.items():
            if not peer["is_agent"]:
                line.send(what="leave")

    def _kill(self) -> None:
        """Agents first: a shell that outlives its program would note an exit code."""
        for line in sorted(self.peers, key=lambda line: not self.peers[line]["is_agent"]):
            line.send(what="leave")
            if self.peers[line]["is_agent"]:
                line.sock.recv(1)  # until it is gone


# --- the programs ---


def coordinator(words: list[str]) -> int:
    options, _ = split(words, ("exit-on-last",))
    Coordinator(options).run()
    return 0


def launch(words: list[str]) -> int:
    options, command = split(words, ("join-coordinator", "no-gzip"))
    try:
        line = connect(int(options["coord-port"]))
    except OSError:
        print("dmtcp_launch: no coordinator", file=sys.stderr)
        return FAILED
    name = f"{Path(command[0]).name}_{uuid.uuid4().hex[:8]}"
    return agent(line, name, command, options["ckptdir"], os.getcwd(), {}, 0)


def restart(words: list[str]) -> int:
    options, images = split(words, ("join-coordinator",))
    headers = [read_image(image) for image in images]
    root = next((header for header in headers if "command" in header), None)
    if root is None:
        print("dmtcp_restart: an image is missing", file=sys.stderr)
        return FAILED
    frozen = [header["address"] for header in headers if "address" in header]
    line = connect(int(options["coord-port"]))
    os.environ.clear()
    os.environ.update(root["environment"])
    added = {"STAND_IN_WAKE": " ".join(frozen)}
    return agent(line, root["name"], root["command"], options["ckptdir"], os.getcwd(), added, len(images))


def agent(
    line: Line, name: str, command: list[str], images: str, folder: str, added: dict[str, str], expected: int
) -> int:
    """Runs the root process, which may be a shell, and speaks for it."""
    port = line.sock.getpeername()[1]
    base = {key: value for key, value in os.environ.items() if key != "STAND_IN_WAKE"}
    told = {"STAND_IN_PORT": str(port), "STAND_IN_IMAGES": images, "PYTHONPATH": str(HOOK)}

    def join() -> None:
        """Before the program begins, which joins as well."""
        die_with_parent()
        line.send(what="join", pid=os.getpid(), name=name, is_agent=True, expected=expected)

    child = subprocess.Popen(command, cwd=folder, env={**base, **told, **added}, preexec_fn=join)
    end, is_shell = os.pidfd_open(child.pid), Path(command[0]).name in ("sh", "bash", "dash")
    while True:
        ready, _, _ = select.select([end, line.sock], [], [])
        if line.sock not in ready:
            code = child.wait()
            line.sock.close()
            time.sleep(float(os.environ.get("STAND_IN_LEAVE_SECONDS", "0")))
            if code < 0:
                os.kill(os.getpid(), -code)
            return code
        messages = line.receive()
        if messages is None:
            child.kill()
            return FAILED
        for message in messages:
            if message["what"] == "stop":
                if is_shell:  # a program stops by itself
                    child.send_signal(signal.SIGSTOP)
                line.send(what="done")
            elif message["what"] == "write":
                header = {"name": name, "command": command, "environment": base}
                if not (image := write_image(images, name, header)):
                    child.kill()
                    return FAILED
                line.send(what="done", image=image)
            elif message["what"] == "leave":
                child.kill()
                return 0
            else:
                child.send_signal(signal.SIGCONT)


def command(words: list[str]) -> int:
    options, requests = split(words, ())
    request = {"s": "status", "l": "list"}.get(requests[0].lstrip("-"), requests[0].lstrip("-"))
    try:
        line = connect(int(options["coord-port"]))
    except OSError:
        time.sleep(1)
        print("Coordinator not found. Please check port and host.")
        return 2
    line.send(what="command", request=request)
    answer = line.receive()
    print("".join(message["text"] for message in answer or []), end="")
    if request == "kcheckpoint" and RELEASE != "5.0":
        print("Computation was checkpointed and killed.")
        return 2
    return 0


def split(words: list[str], flags: tuple[str, ...]) -> tuple[dict[str, str], list[str]]:
    """Options with a value, and the rest from the first word that is none."""
    options: dict[str, str] = {}
    while words and words[0].startswith("--"):
        name = words[0][2:]
        if name in flags:
            words = words[1:]
        elif name in ("coord-port", "port-file", "ckptdir"):
            options[name], words = words[1], words[2:]
        else:
            break
    return options, words


def die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> int:
    program = Path(sys.argv[0]).name
    if sys.argv[1:] == ["--version"]:
        print(f"{program} (DMTCP) {RELEASE}")
        return FAILED if program == "dmtcp_launch" and RELEASE == "4.1.1" else 0
    named = {"dmtcp_coordinator": coordinator, "dmtcp_launch": launch, "dmtcp_restart": restart}
    return named.get(program, command)(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
