"""What the kernel says of memory: whose processes it killed for want of it.  The folders of control groups are ours."""

import signal
import time

import pytest
from support.toyrun import history, run_program, toy_job

from unbroken.errors import SegmentError
from unbroken.system import memory
from unbroken.system.memory import Kills, out_of_memory_kills

JOB = "/system.slice/slurmstepd.scope/job_17/step_0/user/task_0"
SESSION = "/user.slice/session-3.scope"


class Groups:
    """A tree of control groups; `counter` is the file in which the kernel counts for the group of this process."""

    def __init__(self, folder, monkeypatch):
        self.root, self.own = folder / "cgroup", folder / "own"
        monkeypatch.setattr(memory, "CGROUPS", self.root)
        monkeypatch.setattr(memory, "OWN_GROUPS", self.own)

    def live_in(self, group, version=2):
        names = {1: ("4:memory", "memory", "memory.oom_control"), 2: ("0:", "", "memory.events")}
        controllers, below, name = names[version]
        self.own.write_text(f"3:cpuset:/\n{controllers}:{group}\n")
        self.counter = self.root / below / group.lstrip("/") / name
        self.counter.parent.mkdir(parents=True)
        self.counter.write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")


@pytest.fixture
def groups(tmp_path, monkeypatch):
    (tmp_path / "groups").mkdir()
    return Groups(tmp_path / "groups", monkeypatch)


def in_job(monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time()) + 3600))  # else squeue would be asked


# In `$counter` the kernel counts.
ANOTHER_KILL = 'echo "oom_kill 3" > $counter'


@pytest.mark.parametrize("version", [1, 2])
def test_kills_are_counted_where_this_process_lives(groups, version):
    groups.live_in(SESSION, version)

    assert out_of_memory_kills() == Kills(2, is_job=False)


@pytest.mark.parametrize("version", [1, 2])
def test_the_groups_of_a_slurm_job_hold_nobody_else(groups, version):
    groups.live_in(JOB, version)

    assert out_of_memory_kills("17") == Kills(2, is_job=True)
    assert out_of_memory_kills("1") == Kills(2, is_job=False)
    assert out_of_memory_kills() == Kills(2, is_job=False)


def test_where_nobody_counts_nothing_was_killed(groups):
    assert out_of_memory_kills("17") == Kills(0, is_job=False)


@pytest.mark.process
@pytest.mark.parametrize(
    ("group", "script", "cause"),
    [
        pytest.param(SESSION, f"{ANOTHER_KILL}; exit 1", None, id="a neighbour lacked it, the program failed"),
        pytest.param(SESSION, f"{ANOTHER_KILL}; kill -KILL $$", "OUT_OF_MEMORY", id="the kernel killed the program"),
        pytest.param(SESSION, "kill -KILL $$", None, id="somebody killed the program"),
        pytest.param(SESSION, f"{ANOTHER_KILL}; exit {128 + signal.SIGKILL}", "OUT_OF_MEMORY", id="a shell says so"),
        pytest.param(JOB, f"{ANOTHER_KILL}; exit 1", "OUT_OF_MEMORY", id="failed because of a worker in its own job"),
        pytest.param(JOB.replace("17", "18"), f"{ANOTHER_KILL}; exit 1", None, id="in a group of another job"),
    ],
)
def test_a_program_lacked_memory_if_the_kernel_killed_something_of_it(
    tmp_path, monkeypatch, groups, group, script, cause
):
    if group != SESSION:
        in_job(monkeypatch)
    groups.live_in(group)
    words = ["sh", "-c", f"counter={groups.counter}; {script}"]

    with pytest.raises(SegmentError):
        run_program(tmp_path, words)

    (attempt,) = history(toy_job(tmp_path))
    assert attempt.job_state == cause


@pytest.mark.process
def test_a_program_that_came_to_its_end_all_the_same_needs_no_more_memory(tmp_path, monkeypatch, groups):
    in_job(monkeypatch)
    groups.live_in(JOB)
    progress = '{"done": 20, "goal": 20}'
    save = f"mkdir $UNBROKEN_SAVE/1.ready; echo '{progress}' > $UNBROKEN_SAVE/1.ready/progress.json"

    run_program(tmp_path, ["sh", "-c", f"counter={groups.counter}; {ANOTHER_KILL}; {save}; exit 0"])

    (attempt,) = history(toy_job(tmp_path))
    assert attempt.job_state is None
