"""Runs one attempt at a segment again and again, killed at another step each time, then lets the next attempt go on.

A step is a call of `os` that changes the disk below results/.  Forks of one prepared process make a case cheap; fsync
is counted but not done, because a kill is no power loss.  With `stop` the attempt is not killed but put to sleep, as a
hanging node does it, and wakes up when others have long gone on.  With the name of an error (EIO), one call of `os`,
reads included, fails by it.  Run as a process of its own:

    kill_harness.py <scenario> <folder> <part> <parts> kill|stop|EIO|EIO-lines|... [<how many double kills>]

With `-lines` of the calls that come from the same lines of ours only the first one fails.

Prints a line of JSON: how many cases there were, and what went wrong in which.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import io
import json
import os
import random
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.toyrun import ProgramEngine, flip_byte, hidden, toy_job

from unbroken.errors import UnbrokenError
from unbroken.job.attempt import Job
from unbroken.job.lifecycle import run_segment
from unbroken.program import guard
from unbroken.program import process as child
from unbroken.store import claim as holder
from unbroken.store import lease
from unbroken.store import select as pick
from unbroken.store.checkpoints import QUARANTINE, Store
from unbroken.store.history import EndKind, History
from unbroken.store.select import verify
from unbroken.system import host

# Errors that mean the same to us share the calls, or the lines: the file server is away or does not say what it is, the
# disk takes nothing, somebody has to do something.
KINDS = (
    ("ESTALE", "ENOTCONN", "ETIMEDOUT", "EBUSY", "ENOTEMPTY"),
    ("ENOSPC", "EDQUOT", "EROFS"),
    ("EACCES", "EMFILE"),
)
# Two steps a segment, a checkpoint after each, in the plain shell because it starts in a millisecond.  It refuses to go
# on from anything but a published checkpoint.
PROGRAM = r"""
n=0 v=1 trace=
if [ -n "$UNBROKEN_RESUME" ]; then
  case $UNBROKEN_RESUME in */checkpoints/0*_t[0-9]*) ;; *) exit 3 ;; esac
  while read a b; do n=$a v=$b trace="$trace$a $b
"; done < "$UNBROKEN_RESUME/final/trace"
  [ -n "$trace" ] || exit 4
fi
cd "$UNBROKEN_SAVE" || exit 5
mkdir draft1 draft1/final draft2 draft2/final
for i in 1 2; do
  [ $n -lt "$UNBROKEN_GOAL" ] || break
  n=$((n + 1)) v=$(((v * 31 + n) % 65521))
  trace="$trace$n $v
"
  echo "$n $v" > draft$i/state
  printf "%s" "$trace" > draft$i/final/trace
  echo "{\"done\": $n, \"goal\": $UNBROKEN_GOAL}" > draft$i/progress.json
  mv draft$i 00$n.ready
done
[ $n -ge "$UNBROKEN_GOAL" ] && exit 0
exit 85
"""
ENGINE = ProgramEngine(["sh", "-c", PROGRAM])


def trace(goal: int) -> str:
    """What an uninterrupted run comes to."""
    value, text = 1, ""
    for step in range(1, goal + 1):
        value = (value * 31 + step) % 65521
        text += f"{step} {value}\n"
    return text


# --- steps ---------------------------------------------------------------------------------------------------------


class Steps:
    """Counts the steps of this process from now on and kills it at one of them."""

    def __init__(
        self, root: Path, at: int = 0, mode: str = "before", number: int = signal.SIGKILL, told: Path | None = None
    ) -> None:
        self.root, self.at, self.mode, self.number = f"{root}/", at, mode, number
        self._readlink = os.readlink
        self.told = told  # which step it was: they shift by one or two with the moment in which the program saves
        self.names: list[str] = []
        self.sites: list[str] = []  # from which lines of ours each was called
        for name in ("mkdir", "unlink", "remove", "rmdir", "utime", "write", "fsync", "open"):
            self._wrap(name, 0)
        for name in ("rename", "replace", "link", "symlink"):
            self._wrap(name, 1)
        if mode in vars(errno):
            for name in ("stat", "lstat", "listdir", "scandir", "statvfs", "read", "pread", "fstat", "readlink"):
                self._wrap(name, 0)
            io.open = self._counting("create", io.open, lambda path, *_, **__: self._is_below(path))  # type: ignore
        really_open = builtins.open
        builtins.open = self._counting("create", really_open, lambda *a, **k: self._is_writing(*a, **k))  # type: ignore

    def _wrap(self, name: str, which: int) -> None:
        really = getattr(os, name)

        def counts(*args: object, **more: object) -> bool:
            is_reading = name == "open" and not int(args[1]) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)  # type: ignore[call-overload]
            if (is_reading and self.mode not in vars(errno)) or len(args) <= which:
                return False
            return self._is_below(args[which], more.get("dir_fd"))

        setattr(os, name, self._counting(name, really, counts))

    def _is_below(self, target: object, folder: object = None) -> bool:
        try:
            path = self._path(target, folder)
        except (OSError, TypeError):  # a closed descriptor, or one that the call itself will refuse
            return False
        return f"{path}/".startswith(self.root)

    def _is_writing(self, path: object, mode: str = "r", *_: object, **__: object) -> bool:
        return not isinstance(path, int) and mode[0] in "wax" and self._path(path, None).startswith(self.root)

    def _path(self, target: object, folder: object) -> str:
        if isinstance(target, int):
            return self._readlink(f"/proc/self/fd/{target}")
        name = os.fsdecode(target)  # type: ignore[call-overload]
        return os.path.join(self._readlink(f"/proc/self/fd/{folder}"), name) if folder is not None else name

    def _counting(self, name: str, real: Callable[..., object], counts: Callable[..., bool]) -> Callable[..., object]:
        def call(*args: object, **more: object) -> object:
            if not counts(*args, **more):
                return real(*args, **more)
            self.names.append(name)
            if self.at == 0 and self.mode in vars(errno):
                self.sites.append(f"{name} {_lines_of_ours()}")
            if len(self.names) != self.at:
                return real(*args, **more)
            if self.mode in vars(errno):
                number = getattr(errno, self.mode)
                raise OSError(number, os.strerror(number), args[0] if isinstance(args[0], str | os.PathLike) else None)
            if self.told:
                self.told.write_text(name)
            if self.mode == "half" and name == "write":
                real(args[0], bytes(args[1])[: len(args[1]) // 2])  # type: ignore[arg-type,call-overload]
            if self.mode != "after":
                os.kill(os.getpid(), self.number)
            done = real(*args, **more)
            if self.mode == "after":
                os.kill(os.getpid(), self.number)
            return done

        return call


def _lines_of_ours() -> str:
    frames = traceback.extract_stack()
    return " ".join(f"{frame.filename}:{frame.lineno}" for frame in frames if "/unbroken/" in frame.filename)


# --- processes -----------------------------------------------------------------------------------------------------


def forked(work: Callable[[], object], screen: Path) -> tuple[int, int]:
    """Runs `work` in a fork whose screen is a file; returns its pid and wait status (exit code 70: an exception)."""
    pid = os.fork()
    if pid:
        return pid, os.waitpid(pid, os.WUNTRACED)[1]
    code = 70
    try:
        descriptor = os.open(screen, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
        work()
        code = 0
    except BaseException:  # noqa: BLE001  (told on the screen and by the exit code)
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


@dataclass(frozen=True)
class Guard:
    """A guard that was forked."""

    pid: int

    def wait(self) -> None:
        with contextlib.suppress(ChildProcessError):  # waited for already
            os.waitpid(self.pid, 0)

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)


def guarded(command: Sequence[str], **more: Any) -> child.Child:
    """As that of `child`, whose guards are a program of their own; a fork has nothing to load."""
    life, held = os.pipe()
    told, tells = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            for place, stream in enumerate((os.open(os.devnull, os.O_RDONLY), more["stdout"].fileno())):
                os.dup2(stream, place)
            os.dup2(1, 2)
            for descriptor in map(int, os.listdir("/proc/self/fd")):
                if descriptor not in (0, 1, 2, life, tells):
                    with contextlib.suppress(OSError):  # that of the list
                        os.close(descriptor)
            if more["cwd"]:
                os.chdir(more["cwd"])
            os.environ.clear()
            os.environ.update(more["env"])
            guard.main(life, tells, command)
        finally:
            os._exit(0)
    os.close(life)
    os.close(tells)
    return child.Child(Guard(pid), held, told)  # type: ignore[arg-type]


# --- scenarios -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scenario:
    """A run as it is before the attempt that gets killed."""

    goal: int
    segment: int  # the one whose attempt is killed
    prepare: Callable[[Path], object] = lambda base: None
    old_goal: int = 0  # final/ stands already, made for this one
    has_bad: bool = False

    def job(self, base: Path, segment: int, goal: int | None = None) -> Job:
        return toy_job(base, segment, goal=goal or self.goal, keep=1)


def _one_done(base: Path) -> None:
    run_segment(toy_job(base, 1, goal=2, keep=1), ENGINE)


def _newest_spoilt(base: Path) -> None:
    run_segment(toy_job(base, 1, goal=4, keep=2), ENGINE)
    flip_byte(Store(toy_job(base).places.checkpoints).readable()[-1].folder / "state")


def _finished_and_tidied_by_the_user(base: Path) -> None:
    _one_done(base)
    places = toy_job(base).places
    shutil.rmtree(places.final)
    places.record(1).unlink()


SCENARIOS = {
    "new": Scenario(goal=3, segment=1),
    "goal_raised": Scenario(goal=4, segment=2, prepare=_one_done, old_goal=2),
    "newest_bad": Scenario(goal=4, segment=2, prepare=_newest_spoilt, has_bad=True),
    "final_lost": Scenario(goal=2, segment=1, prepare=_finished_and_tidied_by_the_user),
}


@dataclass
class Case:
    """One folder in which an attempt is killed and the next ones go on."""

    scenario: Scenario
    base: Path
    kills: tuple[tuple[int, str], ...]
    site: str = ""  # the lines of ours that make the call which fails

    def run(self) -> str:
        """What went wrong; empty if nothing did."""
        screen = self.base / "screen"
        for at, mode in self.kills:
            forked(lambda at=at, mode=mode: self._attempt(at, mode), screen)  # type: ignore[misc]
        return self._in_fork(self._look_and_go_on, screen)

    def run_with_error(self) -> str:
        """What went wrong with an attempt of which one call fails; an error of ours is how it should end, if at all."""
        screen = self.base / "screen"
        (at, mode), *_ = self.kills
        _, status = forked(lambda: self._attempt_with_error(at, mode), screen)
        if status != 0:
            return f"status {status}\n{screen.read_text()}"
        return self._in_fork(self._look_after_error, screen) or self._in_fork(self._go_on, screen)

    def _attempt_with_error(self, at: int, mode: str) -> None:
        job = self.scenario.job(self.base, self.scenario.segment)
        Steps(job.places.root, at, mode)
        try:
            run_segment(job, ENGINE)
        except UnbrokenError as error:
            (self.base / "error").write_text(str(error))

    def _look_after_error(self) -> None:
        """As after a kill; and who held the lease has its line, unless it was that which failed."""
        self._look()
        places = self.scenario.job(self.base, 1).places
        if not self.scenario.has_bad:
            assert not (places.checkpoints / QUARANTINE).exists(), "quarantine"
        if not (self.base / "error").exists() or "/history.py:" in self.site or "/lease.py:" in self.site:
            return
        tokens = {attempt.token for attempt in History(places.history).attempts()}
        over = [json.loads(path.read_text()) for path in places.lease.glob("[0-9]*.json")]
        silent = [claim["token"] for claim in over if claim["released_utc"] and claim["token"] not in tokens]
        assert silent == [], f"held the lease and left no line: {silent}\n{self.site}"

    def run_asleep(self) -> str:
        """The same with a sleeper: others take the run over and end it, then the sleeper wakes up."""
        screen = self.base / "screen"
        pid, status = forked(lambda: self._attempt(self.kills[0][0], "before", signal.SIGSTOP), screen)
        if status == 0:
            return ""  # it had fewer steps than the one that was counted
        if not os.WIFSTOPPED(status):
            return f"was not stopped: {status}\n{screen.read_text()}"
        claims = toy_job(self.base).places.lease.glob("[0-9]*.json")
        for path in claims:  # nobody takes a run from a process that it sees alive
            path.write_text(json.dumps({**json.loads(path.read_text()), "host": "elsewhere"}))
        error = self._in_fork(self._go_on_beside_a_sleeper, screen)
        os.kill(pid, signal.SIGCONT)
        os.waitpid(pid, 0)
        if (self.base / "step").read_text() in {
            "symlink",
            "replace",
            "unlink",
        }:  # it may turn a link back; the next attempt mends that
            return error or self._in_fork(self._pass_on, screen)
        return error or self._in_fork(self._look, screen) or self._in_fork(self._pass_on, screen)

    def _go_on_beside_a_sleeper(self) -> None:
        holder.STALE_POLLS = 0  # the first look at it counts
        self._go_on()

    def _pass_on(self) -> None:
        """After the sleeper has gone too."""
        record = run_segment(self.scenario.job(self.base, 9), ENGINE)

        places = self.scenario.job(self.base, 1).places
        assert record.kind is EndKind.FINISHED
        assert (places.final / "trace").read_text() == trace(self.scenario.goal)
        assert not (places.checkpoints / QUARANTINE).exists() or self.scenario.has_bad
        assert Store(places.checkpoints).readable()[-1].name == os.readlink(places.checkpoints / "latest")

    def _in_fork(self, work: Callable[[], object], screen: Path) -> str:
        _, status = forked(work, screen)
        return "" if status == 0 else f"{work.__name__}: status {status}\n{screen.read_text()}"

    def _attempt(self, at: int, mode: str, number: int = signal.SIGKILL) -> None:
        job = self.scenario.job(self.base, self.scenario.segment)
        Steps(job.places.root, at, mode, number, self.base / "step")
        run_segment(job, ENGINE)

    def _look_and_go_on(self) -> None:
        self._look()
        self._go_on()

    def _look(self) -> None:
        """What anybody may see after the kill."""
        places = self.scenario.job(self.base, 1).places
        store = Store(places.checkpoints)
        bad = [name for name in store.names() if not _is_good(store.root / name)]
        assert len(bad) <= self.scenario.has_bad, f"visible and not whole: {bad}"
        assert self.scenario.segment == 1 or len(store.names()) > len(bad), "no good checkpoint is left"
        latest = store.root / "latest"
        assert self.scenario.has_bad or not latest.is_symlink() or latest.exists(), "latest dangles"
        if places.final.exists():
            made = (places.final / "trace").read_text()
            assert made in {trace(self.scenario.old_goal), trace(self.scenario.goal)}, f"final is torn: {made!r}"
            json.loads((places.final / "summary.json").read_text())
        if places.history.exists():
            torn = [line for line in places.history.read_text().split("\n")[:-1] if not _is_json(line)]
            # A kill within the write of a line leaves half of it, which readers pass over.
            halves = sum(mode == "half" for _, mode in self.kills)
            assert len(torn) <= halves, f"torn lines in the history: {torn}"
        for record in places.segments.glob("[0-9]*.json"):
            json.loads(record.read_text())

    def _go_on(self) -> None:
        """The next attempts, up to the end."""
        scenario = self.scenario
        places = scenario.job(self.base, 1).places
        visible = [verify(place, "demo") for place in _visible(places.checkpoints) if _is_good(place)]
        expected = max((checkpoint.passport.progress.done for checkpoint in visible), default=0)
        furthest = max([expected, *_handed_over(places.work)])  # the killed attempt's last state may be saved yet
        killed = [json.loads(path.read_text()) for path in places.lease.glob("[0-9]*.json")]
        _make_old(places.lease)
        told = len(History(places.history).attempts())

        record = run_segment(scenario.job(self.base, scenario.segment), ENGINE)

        worked = [one for one in History(places.history).attempts()[told:] if one.kind is not EndKind.DIED]
        is_right = [expected <= one.progress_from <= furthest for one in worked]
        assert all(is_right), f"went on from {worked}, not from {expected} to {furthest}"
        assert hidden(places.root) == [], f"leftovers: {hidden(places.root)}"
        segment = scenario.segment
        while record.kind is not EndKind.FINISHED:
            segment += 1
            assert segment < 9, "does not come to an end"
            record = run_segment(scenario.job(self.base, segment), ENGINE)
        assert (places.final / "trace").read_text() == trace(scenario.goal)
        assert Store(places.checkpoints).names()[-1] == os.readlink(places.checkpoints / "latest")
        attempts = History(places.history).attempts()
        tokens = [attempt.token for attempt in attempts]
        assert len(tokens) == len(set(tokens)), f"an attempt is there twice: {tokens}"
        lost = [claim["token"] for claim in killed if not claim["released_utc"] and claim["token"] not in tokens]
        assert lost == [], f"not in the history: {lost}"
        lines = places.history.read_text().splitlines()
        assert len([line for line in lines if not _is_json(line)]) <= len(self.kills)
        self._look_at_quarantine(places.checkpoints / QUARANTINE)

    def _look_at_quarantine(self, folder: Path) -> None:
        found = sorted(folder.glob("[0-9]*_t1")) if folder.exists() else []
        # One that could not be read is passed over, and goes when it is old enough.
        is_hidden = self.kills[0][1] in vars(errno) and not found
        assert is_hidden or len(found) == self.scenario.has_bad, f"quarantine: {found}"
        for bad in found:
            assert "the content changed" in bad.with_name(f"{bad.name}.reason.json").read_text()


def _visible(folder: Path) -> list[Path]:
    return [folder / name for name in Store(folder).names()]


def _handed_over(work: Path) -> list[int]:
    """How far the states are that somebody handed over and nobody published, or was just publishing."""
    told = [*work.rglob("*.ready/progress.json"), *work.rglob("told-*.ready.json")]
    return [json.loads(path.read_text())["done"] for path in told]


def _is_good(folder: Path) -> bool:
    try:
        verify(folder, "demo")
    except Exception:  # noqa: BLE001  (whatever it is, it is not good)
        return False
    return True


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return not line
    return True


def _make_old(folder: Path) -> None:
    """Time passes: drafts of a claim are removed only once they are too old to be somebody's work."""
    for path in folder.glob(".*"):
        os.utime(path, (1, 1))


# --- all cases -----------------------------------------------------------------------------------------------------


def count_steps(scenario: Scenario, template: Path, base: Path, mode: str = "before") -> tuple[list[str], list[str]]:
    """The names of the steps of an attempt that is not killed, and where an error can come the lines that take them."""
    shutil.copytree(template, base, symlinks=True)
    job = scenario.job(base, scenario.segment)

    def attempt() -> None:
        steps = Steps(job.places.root, mode=mode)
        run_segment(job, ENGINE)
        (base / "steps").write_text(json.dumps([steps.names, steps.sites]))

    _, status = forked(attempt, base / "screen")
    if status != 0:
        raise RuntimeError((base / "screen").read_text())
    names, sites = json.loads((base / "steps").read_text())
    return names, sites


def _first(sites: list[str]) -> set[int]:
    """Of the calls from the same lines of ours the first."""
    return {sites.index(site) for site in sites}


def run_all(
    scenario: Scenario, folder: Path, part: int, parts: int, mode: str, doubles: int, is_each_line: bool
) -> dict[str, object]:
    template = folder / "template"
    template.mkdir(parents=True)
    scenario.prepare(template)
    names, sites = count_steps(scenario, template, folder / "counted")
    # After one step is before the next: nothing in between changes the disk.
    if mode in vars(errno):
        names, sites = count_steps(scenario, template, folder / "counted_calls", mode)
    one = [(at, "after") for at in range(1, len(names) + 1)]
    one += [(1, "before")] + [(at, "half") for at, name in enumerate(names, 1) if name == "write"]
    if mode != "kill":
        one = [(at, "before" if mode == "stop" else mode) for at in range(1, len(names) + 1)]
    if is_each_line:
        one = [one[place] for place in sorted(_first(sites))]
    dice = random.Random(1)
    every = [(kill,) for kill in one] + [(dice.choice(one), dice.choice(one)) for _ in range(doubles)]
    wrong = []
    for number, kills in enumerate(every):
        if number % parts != part:
            continue
        base = folder / f"case{number}"
        shutil.copytree(template, base, symlinks=True)
        case = Case(scenario, base, kills, sites[kills[0][0] - 1] if mode in vars(errno) else "")
        run = {"stop": case.run_asleep, "kill": case.run}.get(mode, case.run_with_error)
        error = run()
        if error:
            wrong.append({"kills": [(at, mode, names[at - 1]) for at, mode in kills], "error": error})
        shutil.rmtree(base)
    return {"steps": names, "cases": len(every), "wrong": wrong}


def main() -> None:
    scenario, folder, part, parts = SCENARIOS[sys.argv[1]], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    mode, is_each_line = sys.argv[5].removesuffix("-lines"), sys.argv[5].endswith("-lines")
    doubles = int(sys.argv[6]) if len(sys.argv) > 6 else 0
    child._guarded = guarded  # type: ignore[assignment]
    pick.PATIENCE_SECONDS = pick.FIRST_REST_SECONDS = 0.01
    lease.HEARTBEAT_SECONDS = 1000.0  # no step at a moment of its own
    host.this_host()
    os.fsync = lambda descriptor: None
    screen = sys.stdout
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115  (the segments' lines)
    began = time.monotonic()
    try:
        answer = run_all(scenario, folder.resolve(), part, parts, mode, doubles, is_each_line)
    except Exception:
        traceback.print_exc(file=sys.__stderr__)
        raise
    print(json.dumps({**answer, "seconds": time.monotonic() - began}), file=screen)


if __name__ == "__main__":
    main()
