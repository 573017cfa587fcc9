"""A real Slurm cluster on one machine, for tests and for trying: several slurmd, accounting, all below one folder.

    python tests/cluster/lab.py shell      a shell in which sbatch, sinfo and snakemake --profile slurm work

Needs Debian's slurm-wlm, slurmdbd, munge and mariadb-server, or the same programs from elsewhere.
"""

from __future__ import annotations

import argparse
import getpass
import os
import platform
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import lab_files
from lab_files import Plan

PATIENCE_SECONDS = 600.0
PROGRAMS = ("munged", "mariadbd", "mariadb-install-db", "slurmdbd", "slurmctld", "slurmd", "setpriv")
# A flag of slurm_requeue(3), JOB_RECONFIG_FAIL in slurm.h; a job that may not be requeued then ends as BOOT_FAIL.
RECONFIG_FAIL = 1 << 17
CGROUP_FOLDERS = ("memory", "freezer", "cpuset", "devices", "cpuacct")


class LabError(Exception):
    """The laboratory cannot be started or has lost a daemon; the text names the log to read."""


# A requeued job that cannot be altered yet is tried so often, five times a second.
MOST_TRIES = 50


class Cluster:
    """A running cluster; `stop` leaves nothing behind."""

    def __init__(self, folder: Path, nodes: int = 5, has_cgroups: bool = False, has_accounting: bool = True) -> None:
        if missing := [name for name in PROGRAMS if _found(name) is None]:
            raise LabError(f"missing: {', '.join(missing)}; on Debian: slurm-wlm slurmdbd munge mariadb-server")
        self.folder = folder
        port = _free_ports(3 + nodes)
        # Node names are names of cgroups too, which all clusters of a machine share.
        stem = f"n{port}x" if has_cgroups else "node"
        self.plan = Plan(
            folder=folder,
            host=platform.node().partition(".")[0],
            user=getpass.getuser(),
            nodes=tuple(f"{stem}{number}" for number in range(1, nodes + 1)),
            first_port=port,
            has_cgroups=has_cgroups,
            has_accounting=has_accounting,
            has_devices=os.geteuid() == 0,
        )
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._stops = threading.Event()
        self._hastener = threading.Thread(target=self._hasten_requeued, name="hastener", daemon=True)

    # --- life ---

    def start(self) -> Cluster:
        """Brings everything up and waits until all nodes are idle."""
        self._write_files()
        try:
            self._start_munge()
            if self.plan.has_accounting:
                self.start_accounting()
            self._start_slurm()
        except BaseException:
            self.stop()
            raise
        self._hastener.start()
        return self

    def stop(self) -> None:
        """Ends all jobs and daemons, and removes the folder."""
        self._stops.set()
        if self._hastener.is_alive():
            self._hastener.join()
        if "slurmctld" in self._daemons:
            with suppress(LabError):
                self.run("scancel", "--user", self.plan.user)
        for name in reversed(list(self._daemons)):
            self._end(name)
        self._kill_leftovers()
        self._remove_cgroups()
        shutil.rmtree(self.folder, ignore_errors=True)

    def check_alive(self) -> None:
        """LabError naming a daemon that has died by itself."""
        for name, process in self._daemons.items():
            if process.poll() is not None:
                log = self.folder / "log" / f"{name}.log"
                tail = "\n".join(log.read_text(errors="replace").splitlines()[-5:]) if log.exists() else ""
                raise LabError(f"{name} ended with {process.returncode}; {log}:\n{tail}")

    # --- use ---

    @property
    def nodes(self) -> tuple[str, ...]:
        return self.plan.nodes

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to find this cluster."""
        return {
            "SLURM_CONF": str(self.folder / "slurm.conf"),
            "PATH": f"{self.folder / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        }

    @property
    def release(self) -> tuple[int, ...]:
        """Of Slurm, as (22, 5, 8)."""
        return tuple(int(part) for part in self.run("sinfo", "--version").split()[1].split("."))

    def programs(self) -> dict[str, Path]:
        """The files that Slurm's daemons run, by their names."""
        found = (Path(f"/proc/{process.pid}/exe").resolve() for process in self._daemons.values())
        return {path.name: path for path in found if path.name.startswith("slurm")}

    def run(self, *words: str, **environment: str) -> str:
        """What a command of Slurm prints; LabError if it fails."""
        done = subprocess.run(
            words,
            env={**_clean(), **self.environment, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
        )
        if done.returncode != 0:
            raise LabError(f"{' '.join(words)}: {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def sbatch(self, script: str, *words: str, cwd: Path | None = None) -> str:
        """Submits a command line and returns the number of its job."""
        where = ["--chdir", str(cwd or self.folder), "--output", str(self.folder / "log" / "job_%j.log")]
        return self.run("sbatch", "--parsable", *where, *words, "--wrap", script).strip()

    def array(self, script: str, count: int, *words: str, cwd: Path | None = None) -> str:
        """Submit `count` tasks of which one works at a time, and return the number of the array."""
        return self.sbatch(script, f"--array=1-{count}%1", *words, cwd=cwd)

    def state(self, job: str) -> str:
        """Return the state of a job or task, such as RUNNING; of an array a line per task; empty if it is forgotten."""
        with suppress(LabError):
            return self._squeue("%T", "--states=all", "--jobs", job).strip()
        return ""

    def jobs(self, states: str = "pending,running") -> list[str]:
        """Return the names of all jobs in these states; each task of an array counts, also a waiting one, as A_3."""
        return self._squeue("%i", f"--states={states}").split()

    def tasks(self, array: str) -> dict[int, str]:
        """Return the states of an array's tasks; those that were cancelled while they waited have left it."""
        rows = (row.split() for row in self._squeue("%K %T", "--states=all", "--jobs", array).splitlines())
        return {int(task): state for task, state in rows if task.isdecimal()}

    def task_named(self, number: str) -> str:
        """Return the name, as A_3, of the job that has started with this number: the last task has its array's."""
        rows = (row.split() for row in self._squeue("%A %i", "--states=all").splitlines())
        started = [name for own, name in rows if own == number]
        if len(started) != 1:
            raise LabError(f"job {number} is {len(started)} jobs: {' '.join(started[:9])}")
        return started[0]

    def starts(self, folder: Path) -> int:
        """Return how often jobs that work in or below this folder have started; each start after a requeue counts."""
        columns = "--Format=RestartCnt:10,NodeList:90,WorkDir:500"
        rows = self.run("squeue", "--noheader", "--array", "--states=all", columns).splitlines()
        own = [row for row in rows if Path(row[100:].strip()).is_relative_to(folder)]
        return sum(int(row[:10]) + bool(row[10:100].strip()) for row in own)

    def restarts(self, job: str) -> int:
        """Return how often Slurm has put a job or task back into the queue."""
        said = self.run("squeue", "--noheader", "--array", "--states=all", "--Format=RestartCnt", "--jobs", job)
        return sum(map(int, said.split()))

    def accrue_time(self, task: str) -> int | None:
        """Return since when a job or task ages in the queue (Unix seconds); None while it does not."""
        return self._time("AccrueTime", task)

    def eligible_time(self, task: str) -> int | None:
        """Return from when on a job or task may start (Unix seconds); None while Slurm does not say."""
        return self._time("EligibleTime", task)

    def _time(self, column: str, task: str) -> int | None:
        words = ("squeue", "--noheader", "--array", "--states=all", f"--Format={column}", "--jobs", task)
        (found,) = self.run(*words, SLURM_TIME_FORMAT="%s").split()
        return int(found) if found.isdecimal() else None

    def asked_memory(self, job: str) -> str:
        """Return what a job or task asks or asked for, as in 400M."""
        return self._squeue("%m", "--states=all", "--jobs", job).strip()

    def _squeue(self, columns: str, *words: str) -> str:
        """Return a line for each task: one for all that wait would be cut where their numbers are many."""
        return self.run("squeue", "--noheader", "--array", f"--format={columns}", *words)

    def cancel_everything(self) -> None:
        """Cancels all jobs and waits until none is left, also none that is still being ended."""
        self.run("scancel", "--user", self.plan.user)
        self.wait_until(lambda: not self.jobs("pending,running,suspended,completing,stopped"))

    def mend(self) -> None:
        """Starts what was killed and brings every node and partition back."""
        if "slurmctld" not in self._daemons:
            self.start_slurmctld()
        if self.plan.has_accounting and "slurmdbd" not in self._daemons:
            self.start_accounting()
        for node in self.plan.nodes:
            if node not in self._daemons:
                self.start_slurmd(node)
        for partition in ("short", "gpu", "preempt", "urgent"):
            self.run("scontrol", "update", f"PartitionName={partition}", "State=UP")
        self.wait_until(self._resume_all)

    def _resume_all(self) -> bool:
        rows = [line.split() for line in self.run("sinfo", "--noheader", "--Node", "--format=%N %t").splitlines()]
        for node in {node for node, state in rows if state not in {"idle", "idle*"}}:
            with suppress(LabError):
                self.run("scontrol", "update", f"NodeName={node}", "State=RESUME")
        return all(state == "idle" for _, state in rows)

    # --- accidents ---

    def kill_slurmd(self, node: str) -> None:
        """KILL to a node's slurmd; the processes of its jobs live on, as they do on a node that lost its network."""
        process = self._daemons.pop(node)
        process.kill()
        process.wait()

    def lose_node(self, node: str) -> None:
        """KILL to a node's slurmd and to everything that runs there, as when its power fails."""
        self.kill_slurmd(node)
        mark = f"SLURMD_NODENAME={node}".encode()
        ours = set(_pids_with(f"SLURM_CONF={self.folder / 'slurm.conf'}".encode()))
        there = {pid for pid in _pids_with(mark) if pid in ours or _parent(pid) in ours}
        keepers = {parent for pid in there if _name(parent := _parent(pid)).startswith("slurmstepd")}
        for pid in [*keepers, *there]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def fail_boot(self, job: str) -> None:
        """What a site's program for booting nodes tells the controller when a node of this job did not come up."""
        library = next(
            word for word in self.run("ldd", _path("scontrol")).split() if word.startswith("/") and "slurmfull" in word
        )
        call = (
            f"import ctypes; slurm = ctypes.CDLL({library!r}, ctypes.RTLD_GLOBAL); slurm.slurm_init(None); "
            # Not slurm_requeue(), whose first argument is another one from 26.05 on.
            f"told = ctypes.c_void_p(); flags = ctypes.c_uint32({RECONFIG_FAIL}); "
            f"slurm.slurm_requeue2(b'{job}', flags, ctypes.byref(told))"
        )
        self.run(sys.executable, "-c", call)

    def start_slurmd(self, node: str) -> None:
        """Starts a node again, which comes back clean after a while."""
        self._daemon(node, "slurmd", "-D", "-N", node)

    def kill_slurmctld(self) -> None:
        """KILL to the controller."""
        process = self._daemons.pop("slurmctld")
        process.kill()
        process.wait()

    def signal_slurmctld(self, number: signal.Signals) -> None:
        """Send a signal to the controller: STOP, and it takes what it is asked and does not answer."""
        self._daemons["slurmctld"].send_signal(number)

    def stop_slurmctld(self) -> None:
        """TERM, as systemd does it: the controller saves its state.

        KILL may cost it the last seconds of that: it forgets new jobs, and remembers ended ones.
        """
        self._end("slurmctld")

    def start_slurmctld(self) -> None:
        """Starts the controller from the state it saved, and waits until it answers."""
        # From 26.05 on it refuses to start without these, of which it writes one every few minutes only; -i lets it.
        is_saved = all((self.folder / "state" / name).exists() for name in ("assoc_usage", "job_state"))
        self._daemon("slurmctld", "slurmctld", "-D", *([] if is_saved else ["-i"]))
        self.wait_until(lambda: self._answers("scontrol", "ping"))

    def stop_accounting(self) -> None:
        """Ends slurmdbd, so that sacct does not answer."""
        self._end("slurmdbd")

    def start_accounting(self) -> None:
        """Starts the database, if it is not there, and slurmdbd."""
        if "mariadbd" not in self._daemons:
            self._start_database()
        self._daemon("slurmdbd", "slurmdbd", "-D")
        self.wait_until(lambda: self._answers("sacctmgr", "--noheader", "show", "cluster"))

    def wait_until(self, is_so: Callable[[], object], seconds: float = PATIENCE_SECONDS) -> object:
        """The first true answer; LabError if none comes."""
        give_up = time.monotonic() + seconds
        while not (answer := is_so()):
            self.check_alive()
            if time.monotonic() > give_up:
                raise LabError(f"waited {seconds:g} s in vain; logs: {self.folder / 'log'}")
            time.sleep(0.05)
        return answer

    # --- parts ---

    def _write_files(self) -> None:
        for name in ("run", "log", "state", "spool", "dev", "database", "temporary", "tmp", "bin"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o755)  # munge refuses folders that others may write
        files = {"slurm.conf": lab_files.slurm_conf(self.plan), "gres.conf": lab_files.gres_conf(self.plan)}
        files |= {"cgroup.conf": lab_files.cgroup_conf(), "slurmdbd.conf": lab_files.slurmdbd_conf(self.plan)}
        files |= {"database.sql": lab_files.DATABASE_START}
        for name, text in files.items():
            (self.folder / name).write_text(text)
        # The plugin's job step drops SLURM_CONF before it calls srun, which then looks for /etc/slurm/slurm.conf.
        srun = self.folder / "bin" / "srun"
        srun.write_text(f'#!/bin/sh\nSLURM_CONF="{self.folder}/slurm.conf" exec {_path("srun")} "$@"\n')
        srun.chmod(0o755)
        (self.folder / "slurmdbd.conf").chmod(0o600)  # slurmdbd insists: it holds a password
        if self.plan.has_devices:
            for number in range(lab_files.GPUS):
                os.mknod(self.folder / "dev" / f"nvidia{number}", 0o666 | stat.S_IFCHR, os.makedev(1, 3))

    def _start_munge(self) -> None:
        run = self.folder / "run"
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        files = [f"--key-file={key}", f"--socket={run}/munge.socket", f"--pid-file={run}/munged.pid"]
        files += [f"--seed-file={run}/munge.seed", f"--log-file={self.folder}/log/munged.log"]
        self._daemon("munged", "munged", "--foreground", "--force", *files)
        self.wait_until((run / "munge.socket").exists)

    def _start_database(self) -> None:
        data, socket_path = self.folder / "database", self.folder / "run" / "mysql.socket"
        # A starting mariadbd tidies its temporary folder, also of what another one is just using.
        temporary = f"--tmpdir={self.folder / 'temporary'}"
        if not (data / "mysql").exists():
            where = [f"--datadir={data}", f"--user={self.plan.user}", temporary]
            install = [_path("mariadb-install-db"), "--no-defaults", *where]
            done = subprocess.run([*install, "--skip-test-db"], capture_output=True, text=True)
            if done.returncode != 0:
                raise LabError(f"mariadb-install-db: {done.stdout}{done.stderr}")
        where = [f"--datadir={data}", temporary, f"--socket={socket_path}", f"--port={self.plan.database_port}"]
        small = [
            "--innodb-buffer-pool-size=64M",
            "--innodb-lock-wait-timeout=900",
            "--innodb-flush-log-at-trx-commit=0",
        ]
        start = [f"--user={self.plan.user}", "--bind-address=127.0.0.1", f"--init-file={self.folder}/database.sql"]
        self._daemon("mariadbd", "mariadbd", "--no-defaults", *where, *small, *start)
        self.wait_until(lambda: _listens(self.plan.database_port))

    def _start_slurm(self) -> None:
        if self.plan.has_accounting:
            add = ("sacctmgr", "--immediate", "--quiet", "add")
            self.run(*add, "cluster", "lab")
            self.run(*add, "account", "science", "other", "Cluster=lab")
            self.run(
                *add, "user", self.plan.user, "Account=science,other", "DefaultAccount=science", "AdminLevel=Admin"
            )
        self.start_slurmctld()
        for node in self.plan.nodes:
            (self.folder / "spool" / node).mkdir(exist_ok=True)
            self.start_slurmd(node)
        self.wait_until(self._resume_all)

    def _hasten_requeued(self) -> None:
        """Let a requeued job start soon: by itself it rests until the credentials of its start before have run out.

        Not in the same second, in which a node still takes the new credential for the one that was revoked.  A task is
        named A_3: the number of its array alone would stand for all tasks that wait, which would lose their age.
        """
        log, seen, resting = self.folder / "log" / "slurmctld.log", 0, dict[str, int]()
        while not self._stops.wait(0.2):
            with log.open() as lines:
                lines.seek(seen)
                while (line := lines.readline()).endswith("\n"):
                    seen = lines.tell()
                    resting |= dict.fromkeys(re.findall(r"Requeuing JobId=(\d+(?:_\d+)?)", line), MOST_TRIES)
            for job in list(resting):
                resting[job] -= 1
                try:
                    self.run("scontrol", "update", f"JobId={job}", "StartTime=now+2")
                except (LabError, subprocess.TimeoutExpired) as error:
                    # The controller is away, or the job is still leaving its node.
                    if "contact" in str(error) or resting[job] > 0:
                        continue
                del resting[job]

    def _daemon(self, name: str, program: str, *words: str) -> None:
        """Starts a daemon that dies with us, whatever kills us."""
        with (self.folder / "log" / f"{name}.out").open("ab") as log:
            self._daemons[name] = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", _path(program), *words],
                env={**_clean(), **self.environment},
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _end(self, name: str) -> None:
        process = self._daemons.pop(name)
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _answers(self, *words: str) -> bool:
        try:
            self.run(*words)
        except (LabError, subprocess.TimeoutExpired):
            return False
        return True

    def _kill_leftovers(self) -> None:
        mark = f"SLURM_CONF={self.folder / 'slurm.conf'}".encode()
        for pid in list(_pids_with(mark)):
            if pid != os.getpid():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _remove_cgroups(self) -> None:
        for controller in CGROUP_FOLDERS if self.plan.has_cgroups else ():
            for node in self.plan.nodes:
                root = Path("/sys/fs/cgroup") / controller / f"slurm_{node}"
                for path in sorted(root.rglob("*"), reverse=True) if root.exists() else ():
                    if path.is_dir():
                        _remove_cgroup(path)
                _remove_cgroup(root)


def has_cgroups() -> bool:
    """True if this machine lets us make cgroups of version 1, which keep memory limits."""
    root = Path("/sys/fs/cgroup/memory")
    return root.is_dir() and (Path("/sys/fs/cgroup/freezer")).is_dir() and os.access(root, os.W_OK)


def _remove_cgroup(path: Path) -> None:
    give_up = time.monotonic() + 5
    while path.exists() and time.monotonic() < give_up:
        try:
            path.rmdir()
        except OSError:  # its last process is still being buried
            time.sleep(0.05)


def _pids_with(mark: bytes) -> Iterator[int]:
    for folder in Path("/proc").iterdir():
        with suppress(OSError):
            if folder.name.isdecimal() and mark in (folder / "environ").read_bytes().split(b"\0"):
                yield int(folder.name)


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _free_ports(count: int) -> int:
    """The first of so many free ports in a row, below the range that the kernel hands out by itself."""
    start = 20000 + (os.getpid() * 37) % 8000
    for first in range(start, 32000 - count, count):
        if all(_is_free(port) for port in range(first, first + count)):
            return first
    raise LabError(f"no {count} free ports in a row from {start}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return False
    return True


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _found(program: str) -> str | None:
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def _path(program: str) -> str:
    return _found(program) or program


def _clean() -> dict[str, str]:
    foreign = ("SLURM_", "SBATCH_", "SQUEUE_", "SACCT_", "SINFO_")
    return {key: value for key, value in os.environ.items() if not key.startswith(foreign)}


def shell(words: Sequence[str]) -> int:
    """A shell, or the command `words`, inside a new cluster."""
    folder = Path(tempfile.mkdtemp(prefix="unbroken_cluster_"))
    cluster = Cluster(folder).start()
    try:
        print(cluster.run("sinfo"), end="")
        if not words:
            print("A cluster of your own until you leave this shell. Try:")
            print("    snakemake --profile slurm --directory examples/toy")
        command = list(words) or [os.environ.get("SHELL", "bash")]
        return subprocess.run(command, env={**_clean(), **cluster.environment}).returncode
    finally:
        cluster.stop()


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["shell"])
    parser.add_argument("command", nargs=argparse.REMAINDER, help="run this instead of a shell")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that `finally` tidies up
    try:
        return shell(options.command)
    except LabError as error:
        print(f"cluster: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
