"""A run of the DMTCP engine, segment by segment in this process; and its supervisor by hand."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
from support.dmtcp_here import PROGRAMS, REAL
from support.toyrun import until

from unbroken.engines.dmtcp.engine import DmtcpEngine
from unbroken.engines.found import known_schemas, read_checked_runs
from unbroken.job.attempt import Job
from unbroken.job.lifecycle import run_segment
from unbroken.store.checkpoints import Store
from unbroken.store.history import History

WORK = "results/demo/work"
PROGRESS = f"{WORK}/*/progress.json"


class Run:
    """A run in a folder of its own, segment by segment in this process."""

    def __init__(self, base):
        self.base = base
        self.settings = {"dmtcp": str(PROGRAMS)}
        self.keys = {"segments": 9, "segment_minutes": 5, "save_minutes": 9}
        self.places = None
        self.is_over = False

    def job(self, segment=1):
        run = {"engine": "dmtcp", **self.keys, "settings": self.settings}
        (run,) = read_checked_runs({"runs": {"demo": run}}, self.base)
        job = Job(run, known_schemas().engines["dmtcp"].identity, segment, 1, self.base)
        job.log.parent.mkdir(parents=True, exist_ok=True)
        self.places = job.places
        return job

    @property
    def live(self):
        return self.base / "results" / "demo" / "live"

    def segment(self, segment=1, meanwhile=None):
        """Runs a segment; `meanwhile` happens beside it, in a thread."""
        failed = []

        def act():
            try:
                meanwhile()
            except (AssertionError, OSError, ValueError, IndexError) as error:
                failed.append(error)
                os.kill(os.getpid(), signal.SIGUSR1)

        thread = threading.Thread(target=act if meanwhile else lambda: None)
        self.is_over = False
        thread.start()
        try:
            return run_segment(self.job(segment), DmtcpEngine(self.base))
        finally:
            self.is_over = True
            thread.join()
            assert failed == []

    def paused_at(self, gate, segment=1):
        """A segment that is warned when the program stands at a gate."""

        def warn():
            self.until_at(gate)
            os.kill(os.getpid(), signal.SIGUSR1)

        return self.segment(segment, warn)

    def counted(self):
        path = self.live / "numbers.txt"
        return path.read_bytes().count(b"\n") if path.exists() else 0

    def until_at(self, gate):
        until(lambda: self.counted() == gate or self.is_over)

    def let_pass(self, gate):
        (self.base / f"pass{gate}").touch()

    def checkpoints(self):
        return Store(self.places.checkpoints).readable()

    def history(self):
        return History(self.places.history).attempts()

    def log(self, segment=1):
        return self.places.log(segment).read_text()

    def pids(self, needle=""):
        """Processes that were started for this run, with `needle` in their command line."""
        words = {each.pid: " ".join(each.info["cmdline"] or ()) for each in psutil.process_iter(["cmdline"])}
        words.pop(os.getpid(), None)
        return [pid for pid, line in words.items() if str(self.base) in line and needle in line]

    def program(self):
        """The process that counts: it has the file open."""
        (pid,) = [pid for pid in _pids() if any(_leads_to(path, self.live / "numbers.txt") for path in _opened(pid))]
        return pid

    def coordinator(self):
        """It works in the folder of its stage; its command line it may have written over."""
        (stage,) = self.base.glob(f"{WORK}/*/stage*")
        (pid,) = [pid for pid in _pids() if _leads_to(Path(f"/proc/{pid}/cwd"), stage)]
        return pid

    def until_back(self):
        """Until it is known to be at work after a restart."""
        until(lambda: any("restart_seconds" in path.read_text() for path in self.base.glob(PROGRESS)))

    def shells(self):
        """The shell around it, and what stands for it."""
        program = self.program()
        if REAL:  # where the command line of a process is gone after a restart
            return [psutil.Process(program).ppid()]
        return [pid for pid in self.pids("echo $? > .unbroken-exit-code") if pid != program]

    def command(self, request):
        """As somebody types it."""
        (port,) = self.base.glob("results/demo/work/*/stage*/port")
        words = [f"{self.settings['dmtcp']}/dmtcp_command", "--coord-port", port.read_text().strip(), request]
        return subprocess.run(words, check=False, stdout=subprocess.DEVNULL).returncode


def _pids():
    """Not by a glob over /proc: of a process that leaves meanwhile that makes an error, or the end of its list."""
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def _opened(pid):
    """The files of a process; none if it is gone."""
    try:
        return [Path(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")]
    except OSError:
        return []


def _leads_to(path, folder):
    """True if it is a link to something in there; False if it is gone."""
    try:
        return Path(os.readlink(path)).is_relative_to(folder)
    except OSError:
        return False


def keep(live, folder, attempt_folder, *options, command=("x",)):
    """Runs the supervisor by hand; returns its exit code and what it says that failed."""
    (attempt_folder / "save").mkdir(parents=True)
    (attempt_folder / "deadline").write_text("4000000000\n")
    told = {
        "UNBROKEN_RESUME": str(folder or ""),
        "UNBROKEN_SAVE": str(attempt_folder / "save"),
        "UNBROKEN_STOP": str(attempt_folder / "stop"),
        "UNBROKEN_DEADLINE_FILE": str(attempt_folder / "deadline"),
        "UNBROKEN_PROGRESS": str(attempt_folder / "progress.json"),
        "UNBROKEN_SAVE_SECONDS": "600",
    }
    words = ["--live", str(live), "--programs", str(PROGRAMS), *options, "--", *command]
    supervisor = [sys.executable, "-I", "-m", "unbroken.engines.dmtcp.supervisor", *words]
    with (attempt_folder / "log").open("w") as log:
        code = subprocess.run(supervisor, env={**os.environ, **told}, stdout=log, stderr=log, timeout=120).returncode
    why = attempt_folder / "why"
    return code, why.read_text() if why.exists() else ""
