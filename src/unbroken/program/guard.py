"""Start a program below two guards, so that nothing that it starts outlives unbroken's process.

    python -I -S guard.py LIFE TOLD command...

LIFE is the read end of a pipe that unbroken's process holds open, TOLD the write end of one that it reads: the pid of
the program, then its exit code.  When LIFE closes, by our wish or because we died, everything that descends from the
program is killed, whatever session it moved to and however often it forked.

A guard is the reaper of all that loses its parent below it (prctl(2), PR_SET_CHILD_SUBREAPER), so nothing gets out of
its sight.  Each of the two does the same when the other one dies: the inner one holds a pipe from the outer one, and
the outer one inherits what the inner one leaves.  Tasks of `srun` do not descend from it; they are known by the
environment that it hands on, and their step is cancelled.

A program of its own because code between fork and exec is not safe in a process with threads (our heartbeat).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import time
from collections.abc import Iterator, Sequence

# Numbers of prctl(2).
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
# Slurm, a terminal and users send these to all processes of a job; a guard stays until its program is gone.
IGNORED_SIGNALS = (
    signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM,
    signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGXCPU,
)  # fmt: skip
# Ignored by Python, which a program would inherit.
PYTHONS = (signal.SIGPIPE, signal.SIGXFSZ)
# What names an attempt in the environment of its processes: no other one has this folder.
MARK = "UNBROKEN_SAVE"
FIRST_REST_SECONDS, LONGEST_REST_SECONDS = 0.001, 0.5
SCANCEL_SECONDS = 10.0
KILLED = -signal.SIGKILL


def main(life: int, told: int, command: Sequence[str]) -> None:
    """Run the outer guard."""
    for descriptor in (life, told):
        os.set_inheritable(descriptor, False)  # noqa: FBT003
    ignored = [number for number in IGNORED_SIGNALS if signal.getsignal(number) is signal.SIG_IGN]
    for number in IGNORED_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    inner_life, held = os.pipe()
    inner = os.fork()
    if inner == 0:
        os.close(held)
        os.close(life)
        _guard_inside(inner_life, told, command, ignored)
        os._exit(0)
    os.close(inner_life)
    _let_go_of_files()
    for event in _events(life):
        if event == life:
            os.close(held)  # the inner one kills, and leaves
            os.kill(inner, signal.SIGCONT)  # one that was stopped would not
            _, status = os.waitpid(inner, 0)
            break
        if event == inner:
            _, status = os.waitpid(inner, 0)
            break
        os.waitpid(event, 0)
    _kill_all()
    if os.WIFSIGNALED(status):
        _tell(told, f"code {KILLED}")


def _guard_inside(life: int, told: int, command: Sequence[str], ignored: Sequence[int]) -> None:
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    us = os.getpid()
    is_ready, ready = os.pipe()
    program = os.fork()
    if program == 0:
        _become(command, us, ignored, ready)
    os.close(ready)
    os.read(is_ready, 1)  # signals to its group have a group to go to
    _let_go_of_files()
    _tell(told, f"pid {program}")
    has_ended = False
    for event in _events(life, stays=program):
        if event in (program, life):
            # Not reaped yet: as long as its number is taken, a signal to it reaches no other process.
            found = os.waitid(os.P_PID, program, os.WEXITED | os.WNOWAIT | os.WNOHANG)
            if found is not None and not has_ended:
                has_ended = True
                _tell(told, f"code {_code(found)}")
        if event == life:
            break
        if event != program:
            os.waitpid(event, 0)
    _kill_all()
    if not has_ended:
        _tell(told, f"code {KILLED}")


def _become(command: Sequence[str], guard: int, ignored: Sequence[int], ready: int) -> None:
    """Replace this process by the command in a session of its own, and close `ready` then; never return."""
    try:
        os.setsid()
        os.close(ready)
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == guard:  # else it died before the kernel was asked
            for number in {*IGNORED_SIGNALS, *PYTHONS} - set(ignored):
                signal.signal(number, signal.SIG_DFL)
            os.execvp(command[0], list(command))
    except OSError as error:
        os.write(2, f"unbroken: {command[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(127)


def _events(life: int, stays: int = 0) -> Iterator[int]:
    """Yield events one after the other: `life` when that pipe closes, else the pid of a child that has ended.

    A child is yielded until it is reaped; that of `stays` only once, since it is not reaped, and none after it.
    """
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    poll = select.poll()
    for descriptor in (life, woken):
        poll.register(descriptor, select.POLLIN)
    has_stayed = False
    while True:
        while not has_stayed and (child := _ended_child()):
            has_stayed = child == stays
            yield child
        ready = {descriptor for descriptor, _ in poll.poll()}
        if woken in ready:
            os.read(woken, 512)
        if life in ready and not os.read(life, 1):
            yield life


def _ended_child() -> int:
    """Return the pid of a child that has ended and is not reaped yet, 0 if there is none."""
    with contextlib.suppress(ChildProcessError):
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return found.si_pid if found else 0
    return 0


def _kill_all() -> None:
    """Return when this process has no descendant any more."""
    rest = FIRST_REST_SECONDS
    has_cancelled = False
    while True:
        for pid in _descendants(os.getpid()):
            with contextlib.suppress(OSError):  # gone, or another user's
                os.kill(pid, signal.SIGKILL)
        if not has_cancelled:  # no `srun` is left that could start another one
            has_cancelled = True
            _cancel_steps()
        try:
            while os.waitpid(-1, os.WNOHANG)[0] != 0:
                pass
        except ChildProcessError:
            return
        time.sleep(rest)
        rest = min(2 * rest, LONGEST_REST_SECONDS)


def _descendants(ancestor: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal() and (parent := _parent(name)) is not None:
            children.setdefault(parent, []).append(int(name))
    found = list(children.get(ancestor, []))
    for pid in found:
        found += children.get(pid, [])
    return found


def _parent(pid: str) -> int | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, ValueError, IndexError):  # it left in this moment
        return None


def _cancel_steps() -> None:
    """Kill the tasks that an `srun` of the program started, on all nodes."""
    job, own, mark = (os.environ.get(name, "") for name in ("SLURM_JOB_ID", "SLURM_STEP_ID", MARK))
    if not job or not mark:
        return
    found = [words for _, words in marked(f"{MARK}={mark}") if f"SLURM_JOB_ID={job}".encode() in words]
    named = {word.decode()[14:] for words in found for word in words if word.startswith(b"SLURM_STEP_ID=")}
    if not (steps := [step for step in named if step.isdecimal() and step != own]):
        return
    import subprocess  # takes longer to load than all else here

    with contextlib.suppress(OSError, subprocess.SubprocessError):
        words = ["scancel", "--signal=KILL", *(f"{job}.{step}" for step in steps)]
        subprocess.run(words, stdin=subprocess.DEVNULL, timeout=SCANCEL_SECONDS)


def marked(mark: str) -> Iterator[tuple[int, list[bytes]]]:
    """Yield the visible processes of this machine with `NAME=value` in their environment, and all of that."""
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
            words = file.read().split(b"\0")
            if os.fsencode(mark) in words:
                yield int(name), words


def _let_go_of_files() -> None:
    """Close the program's outputs and leave its folder: both may end with the program."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    os.close(nothing)
    os.chdir("/")


def _tell(told: int, line: str) -> None:
    with contextlib.suppress(OSError):  # no process is left to read it
        os.write(told, f"{line}\n".encode())


def _code(found: os.waitid_result) -> int:
    return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status


def die_with(parent: int) -> None:
    """Ask Linux to kill this process when its parent, of that number, dies; also if it has died by now."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), 0, 0, 0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
