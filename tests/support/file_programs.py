"""Programs that save in the ways of real ones, and what kills them, for `unbroken exec` in front of them.

Each counts to its goal and notes in `starts` from where it began.  It waits after N while there is a file `rest-at-N`,
and some in the middle of writing N while there is `tear-at-N`.
"""

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from support.exec_calls import Called

from unbroken.engines.testing.chain import is_alive

_BEGIN = """
import json, os, signal, struct, sys, time

goal = int(sys.argv[1])
open("pid", "w").write(str(os.getpid()))

def begin(number):
    with open("starts", "a") as starts:
        starts.write(f"{number}\\n")
    return number

def rest(number, what="rest"):
    while os.path.exists(f"{what}-at-{number}"):
        open(f"{what}s-at-{number}", "w").close()
        time.sleep(0.01)
"""

# Replaces its state by a rename, ten times a second.
RENAMED = """
state = json.load(open("state/s.json")) if os.path.exists("state/s.json") else {"n": 0, "x": 1}
os.makedirs("state", exist_ok=True)
n = begin(state["n"])
while n < goal:
    n += 1
    state = {"n": n, "x": (state["x"] * 31 + n) % 1000003}
    with open("state/s.new", "w") as file:
        json.dump(state, file)
    os.replace("state/s.new", "state/s.json")
    time.sleep(0.1)
open("result.txt", "w").write(str(state["x"]))
"""

# A checkpoint written in place at every tenth step; a table and a trajectory that it appends to and keeps open.
APPENDED = """
n, x = 0, 1
if os.path.exists("state.chk"):
    saved = json.load(open("state.chk"))
    n, x = saved["n"], saved["x"]
begin(n)
table, trajectory = open("log.csv", "a"), open("traj.bin", "ab")
if n == 0:
    print("step,x", file=table)
while n < goal:
    n += 1
    x = (x * 31 + n) % 1000003
    print(f"{n},{x}", file=table, flush=True)
    time.sleep(0.045)
    if n % 5 == 0:
        trajectory.write(struct.pack("<qq", n, x) * 8)
        trajectory.flush()
    if n % 10 == 0:
        with open("state.chk", "w") as file:
            json.dump({"n": n, "x": x}, file)
    rest(n)
open("done", "w").close()
"""

# A state put in place by a rename at every fifth step, and beside it a log that stays open.
OPEN_LOG = """
os.makedirs("out", exist_ok=True)
n = begin(int(open("out/state").read()) if os.path.exists("out/state") else 0)
log = open("out/events.log", "a")
while n < goal:
    n += 1
    print(n, file=log, flush=True)
    time.sleep(0.1)
    if n % 5 == 0:
        open("out/state.new", "w").write(str(n))
        os.rename("out/state.new", "out/state")
    rest(n)
open("result.txt", "w").write(str(n))
"""

# The best so far, written again and again at its full length; a state is put in place by a rename at every fifth step.
BEST = """
n, x = map(int, open("state").read().split()) if os.path.exists("state") else (0, 1)
begin(n)
while n < goal:
    n += 1
    x = (x * 31 + n) % 1000003
    time.sleep(0.05)
    with open("best.txt", "w") as file:
        file.write(f"best {x:08d}\\n")
    if n % 5 == 0:
        open("state.new", "w").write(f"{n} {x}")
        os.rename("state.new", "state")
    rest(n)
"""

# Saves by a rename at each step, and then tells of the next step.
TOLD_AFTER_STATE = """
n = begin(int(open("state").read()) if os.path.exists("state") else 0)
log = open("log.txt", "a")
while True:
    print(f"step {n + 1} begins", file=log, flush=True)
    rest(n)
    if n == goal:
        break
    time.sleep(0.05)
    n += 1
    open("state.new", "w").write(str(n))
    os.rename("state.new", "state")
"""

# Each step is a transaction in a database that it keeps open, in the journal mode of its second argument.
DATABASE = """
import sqlite3
book = sqlite3.connect("study.db", isolation_level=None)
book.execute(f"PRAGMA journal_mode = {sys.argv[2]}")
book.execute("CREATE TABLE IF NOT EXISTS steps (n INTEGER PRIMARY KEY, x INTEGER, filling BLOB)")
n, x = book.execute("SELECT n, x FROM steps ORDER BY n DESC").fetchone() or (0, 1)
begin(n)
log = open("log.txt", "a")
while n < goal:
    print(f"step {n + 1} begins", file=log, flush=True)
    rest(n)
    n += 1
    x = (x * 31 + n) % 1000003
    book.execute("BEGIN IMMEDIATE")
    book.execute("INSERT INTO steps VALUES (?, ?, ?)", (n, x, b"x" * 20000))
    rest(n, "tear")
    book.execute("COMMIT")
    # What is written within a few milliseconds of a commit cannot be told from what was before it on a busy machine.
    time.sleep(0.5 if os.path.exists(f"rest-at-{n}") or os.path.exists(f"tear-at-{n + 1}") else 0.05)
book.close()
"""

# Keeps a file of HDF5's kind open, in which the head changes as it grows.
CHANGED_INSIDE = """
n = begin(int(open("state").read()) if os.path.exists("state") else 0)
out = open("out.h5", "r+b" if n else "w+b")
while n < goal:
    n += 1
    out.seek(0)
    out.write(b"\\x89HDF\\r\\n\\x1a\\n" + struct.pack("<q", n))
    out.seek(16 + 8 * n)
    out.write(struct.pack("<q", n))
    out.flush()
    time.sleep(0.05)
    open("state.new", "w").write(str(n))
    os.rename("state.new", "state")
    rest(n)
"""

# Goes on from the newest time folder, which has to hold its file.
FOLDERS = """
newest = max(int(name) for name in os.listdir() if name.isdecimal())
if not os.path.exists(f"{newest}/U"):
    sys.exit(f"FATAL: cannot find file {newest}/U")
n = begin(int(open(f"{newest}/U").read().split()[1]))
while n < goal:
    n += 1
    time.sleep(0.1)
    os.makedirs(f"{n}/uniform", exist_ok=True)
    with open(f"{n}/uniform/time", "w") as file:
        file.write(str(n))
    with open(f"{n}/U", "w") as file:
        file.write("value ")
        file.flush()
        rest(n, "tear")
        file.write(f"{n} end")
    rest(n)
open("result.txt", "w").write(str(n))
"""

# Writes a.chk and b.chk in turn, and goes on from the one that was written last.
NEWEST = """
files = sorted(filter(os.path.exists, ("a.chk", "b.chk")), key=lambda name: os.stat(name).st_mtime_ns)
n = begin(json.load(open(files[-1]))["n"] if files else 0)
while n < goal:
    n += 1
    time.sleep(0.1)
    with open("ab"[n % 2] + ".chk", "w") as file:
        text = json.dumps({"n": n})
        file.write(text[:5])
        file.flush()
        rest(n, "tear")
        file.write(text[5:])
    rest(n)
open("result.txt", "w").write(str(n))
"""

# Writes a new file for each number, in two halves, and a second one after it; it resumes from the highest number.
NUMBERED = """
numbers = [int(name.split(".")[1]) for name in os.listdir() if name.startswith("restart.")]
n = max(numbers, default=0)
x = json.load(open(f"restart.{n}.json"))["x"] if n else 1
begin(n)
while n < goal:
    n, x = n + 1, (x * 31 + n) % 1000003
    time.sleep(0.1)
    with open(f"restart.{n}.json", "w") as file:
        text = json.dumps({"x": x})
        file.write(text[:5])
        file.flush()
        rest(n, "tear")
        file.write(text[5:])
    rest(n, "part")
    with open(f"more.{n}.txt", "w") as file:
        file.write(str(n))
    rest(n)
open("result.txt", "w").write(str(x))
"""

# Saves its number in place at every tenth line that it prints; at a TERM it saves and leaves with 0, if it is `polite`.
# With `flush` each line is flushed, with `print` that is Python's own matter; else lines are in a buffer of 4096 bytes,
# as those of a program in C are.
PRINTING = """
told = []
if "polite" in sys.argv:
    signal.signal(signal.SIGTERM, lambda *_: told.append(1))

def save():
    with open("state.txt", "w") as file:
        file.write(str(n))

class Buffer:
    data = b""

    def write(self, text):
        if "print" in sys.argv:
            print(text, end="")
            return
        self.data += text.encode()
        while len(self.data) >= 4096:
            self.flush(4096)

    def flush(self, size=None):
        os.write(1, self.data[:size])
        self.data = self.data[size:] if size else b""

printed = Buffer()
n = begin(int(open("state.txt").read()) if os.path.exists("state.txt") else 0)
while n < goal and not told:
    n += 1
    printed.write(f"line {n:06d} of what this program prints\\n")
    if "flush" in sys.argv:
        printed.flush()
    if n % 10 == 0:
        save()
        time.sleep(0.02)
    while os.path.exists(f"rest-at-{n}") and not told:
        open(f"rests-at-{n}", "w").close()
        time.sleep(0.01)
if told:
    save()
printed.flush()
"""


# One state, written in place in two steps.
IN_PLACE = """
n = begin(json.load(open("state.chk"))["n"] if os.path.exists("state.chk") else 0)
while n < goal:
    n += 1
    time.sleep(0.1)
    with open("state.chk", "w") as file:
        text = json.dumps({"n": n})
        file.write(text[:5])
        file.flush()
        rest(n, "tear")
        file.write(text[5:])
    rest(n)
open("result.txt", "w").write(str(n))
"""

# A folder for each save, and a link `latest` to the newest, from which it goes on.
LATEST = """
n = begin(int(open("ckpt/latest/n").read()) if os.path.exists("ckpt/latest") else 0)
while n < goal:
    n += 1
    time.sleep(0.1)
    os.makedirs(f"ckpt/step-{n}", exist_ok=True)
    with open(f"ckpt/step-{n}/n", "w") as file:
        file.write(str(n))
    if os.path.lexists("ckpt/next"):
        os.unlink("ckpt/next")
    os.symlink(f"step-{n}", "ckpt/next")
    os.replace("ckpt/next", "ckpt/latest")
    rest(n)
open("result.txt", "w").write(str(n))
"""

# Writes the same number to each place that is named behind the goal, by a rename.
PLACES = """
places = sys.argv[2:]
found = {open(name).read() for name in places if os.path.exists(name)}
n = begin(int(found.pop()) if len(found) == 1 else 0)
while n < goal:
    n += 1
    time.sleep(0.1)
    for name in places:
        os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
        with open(f"{name}~", "w") as file:
            file.write(str(n))
        os.replace(f"{name}~", name)
    rest(n)
open("result.txt", "w").write(str(n))
"""

# Leaves a pipe, a socket and a broken link beside its state and its result.
SPECIAL = """
import socket
os.makedirs("out", exist_ok=True)
if not os.path.exists("out/pipe"):
    os.mkfifo("out/pipe")
    socket.socket(socket.AF_UNIX).bind("out/socket")
    os.symlink("nowhere", "out/broken")
n = begin(int(open("out/state").read()) if os.path.exists("out/state") else 0)
while n < goal:
    n += 1
    time.sleep(0.1)
    open("out/state.new", "w").write(str(n))
    os.replace("out/state.new", "out/state")
    rest(n)
open("out/data", "w").write(str(n))
"""


def made(called: Called, text: str, *words: str, goal: int = 20) -> dict[str, tuple[str, ...]]:
    """Writes the program into the folder; what `called.call` and `called.start` need to call it."""
    (called.folder / "work.py").write_text(_BEGIN + text)
    return {"program": (sys.executable, "work.py", str(goal), *words)}


def whole(folder: Path, text: str, *words: str, goal: int = 20) -> Called:
    """The same program without unbroken, to its end, in a folder of its own."""
    import subprocess

    folder.mkdir()
    called = Called(folder)
    program = made(called, text, *words, goal=goal)["program"]
    with (folder / "printed.txt").open("wb") as printed:
        subprocess.run(program, cwd=folder, stdout=printed, check=True)
    return called


def wait_for(called: Called, name: str) -> None:
    """Until there is a file of that name, as `rests-at-N`."""
    called.wait_until((called.folder / name).exists, 60)


def wait_for_moment(called: Called, name: str) -> None:
    """Until exec has noted that the file is complete as it is now."""
    changed = str((called.folder / name).stat().st_mtime_ns)
    called.wait_until(lambda: any(changed in path.read_text() for path in called.store().glob("work/*/moments.jsonl")))


def wait_for_kept(called: Called, name: str, text: str) -> None:
    """Until a checkpoint has a file with that text in it."""

    def is_kept() -> bool:
        return any(text in path.read_text() for path in called.store().glob(f"checkpoints/0*/kept/{name}"))

    called.wait_until(is_kept)


def tear(called: Called, before: int, name: str, text: str, options: tuple[str, ...], more):
    """Calls the program; the process of exec, when `before` is kept (`text` in `name`) and the next is half written."""
    (called.folder / f"rest-at-{before}").touch()
    (called.folder / f"tear-at-{before + 1}").touch()
    process = called.start(*options, **more)
    wait_for_kept(called, name, text)
    (called.folder / f"rest-at-{before}").unlink()
    wait_for(called, f"tears-at-{before + 1}")
    return process


def killed_at(called: Called, number: int, kill: Callable[..., int], options: tuple[str, ...], more, **until) -> int:
    """Call the program, and kill while it rests at a number; `kept` or `moment` says what has to be saved or noted."""
    called.rest_at(number)
    process = called.start(*options, **more)
    if "kept" in until:
        wait_for_kept(called, *until["kept"])
    else:
        wait_for(called, f"rests-at-{number}")
    if "moment" in until:
        wait_for_moment(called, until["moment"])
    code = kill(called, process)
    called.go_on()
    return code


def kill_program(called: Called, process) -> int:
    """The program alone; the exit code of exec."""
    os.kill(_pid(called), signal.SIGKILL)
    return process.wait(60)


def kill_exec(called: Called, process) -> int:
    """Exec; its guard ends the program a moment later."""
    process.kill()
    process.wait()
    wait_for_end(called)
    return 0


def kill_all(called: Called, process) -> int:
    """Both at once, and all that belongs to the program's group."""
    group = os.getpgid(_pid(called))
    process.kill()
    with suppress(ProcessLookupError):  # its guard was quicker
        os.killpg(group, signal.SIGKILL)
    process.wait()
    wait_for_end(called)
    return 0


KILLS: dict[str, Callable[..., int]] = {"the program": kill_program, "exec": kill_exec, "both": kill_all}


def wait_for_end(called: Called) -> None:
    """Until the program is gone."""
    pid = _pid(called)
    called.wait_until(lambda: not is_alive(pid), 60)


def _pid(called: Called) -> int:
    return int((called.folder / "pid").read_text())
