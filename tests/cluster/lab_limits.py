"""What a site limits, and what happens to its controller: settings of the laboratory that hold for a while.

Enter one in an empty queue: a controller that starts with other limits counts the jobs it finds by the new ones.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cluster.lab import Cluster, LabError

UNLIMITED = "-1"


@contextmanager
def configured(cluster: Cluster, **settings: object) -> Iterator[None]:
    """Set lines of slurm.conf, such as `MaxArraySize=4`, by another start of the controller; None removes a line.

    `scontrol reconfigure` is not enough: on 22.05 it shows the new MaxArraySize and goes by the old one.
    """
    before = _conf(cluster).read_text()
    _restart(cluster, _with_settings(before, settings))
    try:
        yield
    finally:
        _restart(cluster, before)


@contextmanager
def room_for_jobs(cluster: Cluster, count: int) -> Iterator[None]:
    """Let the whole site have so many jobs (MaxJobCount), each task of an array counted; it has none to begin with."""
    next_number = int(cluster.sbatch("true", "--hold")) + 1
    with configured(cluster, MaxJobCount=count + 1):
        count_jobs_from(cluster, next_number)  # else jobs that are over count until Slurm forgets them
        yield
        cluster.cancel_everything()


@contextmanager
def ordered_by_age(cluster: Cluster) -> Iterator[None]:
    """Let the age of a job be its whole priority, counted once a minute."""
    settings = {"PriorityType": "priority/multifactor", "PriorityWeightAge": 1000000, "PriorityMaxAge": "0-2"}
    with configured(cluster, **settings, PriorityCalcPeriod=1):
        yield


@contextmanager
def default_scheduling(cluster: Cluster) -> Iterator[None]:
    """Schedule as Slurm does by default, without the laboratory's SchedulerParameters."""
    with configured(cluster, SchedulerParameters=None):
        yield


@contextmanager
def lazy_scheduling(cluster: Cluster) -> Iterator[None]:
    """Schedule only when something happens: a submission, an end, a change of a job."""
    with configured(cluster, SchedulerParameters="bf_interval=3600,sched_interval=3600"):
        yield


@contextmanager
def user_limited(cluster: Cluster, user: str = "", **limits: int) -> Iterator[None]:
    """Limit the associations of a user (by default ours), as in `MaxSubmitJobs=4`; the controller knows it then."""
    user = user or cluster.plan.user
    _modify_user(cluster, user, {name: str(value) for name, value in limits.items()})
    try:
        yield
    finally:
        _modify_user(cluster, user, dict.fromkeys(limits, UNLIMITED))


@contextmanager
def qos(cluster: Cluster, name: str, **limits: int) -> Iterator[str]:
    """Let our user submit with a QOS of this name, limited as in `GrpSubmitJobs=3`; it vanishes with its jobs."""
    words = [f"{key}={value}" for key, value in limits.items()]
    modify = ("sacctmgr", "--immediate", "--quiet", "modify", "user", cluster.plan.user, "set")
    cluster.run("sacctmgr", "--immediate", "--quiet", "add", "qos", name, *words)
    cluster.run(*modify, f"qos+={name}")
    try:
        cluster.wait_until(lambda: _may_use(cluster, name))
        yield name
    finally:
        cluster.cancel_everything()
        cluster.run(*modify, f"qos-={name}")
        cluster.run("sacctmgr", "--immediate", "--quiet", "delete", "qos", name)


@contextmanager
def controller_killed(cluster: Cluster) -> Iterator[None]:
    """Kill the controller; at the end of the block it starts again from the state that it had saved."""
    cluster.kill_slurmctld()
    try:
        yield
    finally:
        cluster.start_slurmctld()


@contextmanager
def controller_frozen(cluster: Cluster) -> Iterator[None]:
    """Let the controller answer nothing, although it is there; at the end of the block it goes on."""
    cluster.signal_slurmctld(signal.SIGSTOP)
    try:
        yield
    finally:
        cluster.signal_slurmctld(signal.SIGCONT)


def count_jobs_from(cluster: Cluster, number: int) -> None:
    """Cancel all jobs and forget them; the next one is given this number, whoever had it before."""
    cluster.cancel_everything()
    before = _conf(cluster).read_text()
    _restart(cluster, _with_settings(before, {"FirstJobId": number}), forgets=True)
    _conf(cluster).write_text(before)
    cluster.mend()


def _conf(cluster: Cluster) -> Path:
    return cluster.folder / "slurm.conf"


def _with_settings(text: str, settings: dict[str, object]) -> str:
    for name, value in settings.items():
        text = re.sub(rf"^{name}=.*\n", "", text, flags=re.MULTILINE)
        text += "" if value is None else f"{name}={value}\n"
    return text


def _restart(cluster: Cluster, conf: str, forgets: bool = False) -> None:
    cluster.stop_slurmctld()
    for path in (cluster.folder / "state").glob("job_state*") if forgets else ():
        path.unlink()
    _conf(cluster).write_text(conf)
    cluster.start_slurmctld()


def _modify_user(cluster: Cluster, user: str, limits: dict[str, str]) -> None:
    words = [f"{name}={value}" for name, value in limits.items()]
    cluster.run("sacctmgr", "--immediate", "--quiet", "modify", "user", user, "set", *words)
    shown = {name: "" if value == UNLIMITED else value for name, value in limits.items()}
    cluster.wait_until(lambda: all(_limits(cluster, user, name) == {value} for name, value in shown.items()))


def _limits(cluster: Cluster, user: str, name: str) -> set[str]:
    """Return what the controller goes by in the associations of a user; an empty word for no limit."""
    text = cluster.run("scontrol", "show", "assoc_mgr", f"users={user}", "flags=assoc")
    own = [part for part in text.split("ClusterName=") if f"UserName={user}(" in part]
    return {word.replace("N", "") for part in own for word in re.findall(rf"\b{name}=(\w*)", part)}


def _may_use(cluster: Cluster, name: str) -> bool:
    try:
        cluster.run("sbatch", "--test-only", f"--qos={name}", "--wrap", "true")
    except LabError:
        return False
    return True
