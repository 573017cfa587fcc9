"""Chains of a user's own rules: what each end of the rule's job leads to.

The rule's job is a process that leaves what `unbroken exec`, or a training, leaves in a job: a note of its run and a
line in that run's history.
"""

import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.slurm_commands import Slurm, chain_spec, job_of_a_chain
from support.toyrun import PYTHONPATH, toy_run

from unbroken.job import rule_state, segment_process
from unbroken.job.after_work import look_after_the_rest
from unbroken.job.needs import wanted_memory_mb
from unbroken.job.next_attempt import Stop
from unbroken.job.rule_state import RuleState, read_state
from unbroken.job.spec import ChainJob, path_of, read
from unbroken.job.work import RuleWork
from unbroken.store.exec_note import ExecNote
from unbroken.store.history import EndKind, History
from unbroken.store.layout import CHAINS
from unbroken.system import memory

KEY = ".rules/1a2b"
STORE = "ckpt"
# A job of the rule: its note, a line in the history (PAUSED, FAILED, or none), and its exit code.  One that is killed
# leaves its claim, and the line of the one before it.
RULE = """
import os, signal, sys
from dataclasses import replace
from pathlib import Path
from support.making import ATTEMPT
from unbroken.store import attempts, lease
from unbroken.store.checkpoints import Store
from unbroken.store.exec_note import ExecNote, note_path, write_note
from unbroken.store.history import EndKind, History
from unbroken.store.layout import RunFolder
from unbroken.slurm.job import EndState
open("starts", "a").write("x")
note, line, code = sys.argv[1:]
folder = Path("ckpt")
history = History(folder / "history.jsonl")
folder.mkdir(exist_ok=True)
made = history.attempts()
done = 10.0 * (1 + len(made))
start = os.environ.get("UNBROKEN_START", "")
more = {"token": 1 + len(made), "slurm_job": os.environ["SLURM_JOB_ID"], "start": start}
if line == "paused":
    history.append(replace(ATTEMPT, progress_from=done - 10, progress_to=done, **more))
if line == "failed":
    history.append(replace(ATTEMPT, kind=EndKind.FAILED, progress_to=0.0, message="no such file", **more))
if line == "memory":
    state = EndState.OUT_OF_MEMORY
    history.append(replace(ATTEMPT, kind=EndKind.FAILED, progress_to=0.0, job_state=state, **more))
if note:
    kind = None if note == "started" else EndKind(note)
    write_note(note_path(Path()), ExecNote("train", str(folder), kind, 1, "the inputs were changed"))
if line == "killed":
    held = lease.take(RunFolder("train", store=folder).lease, 1, 0.0)
    attempts.note_died(history, held, Store(folder / "checkpoints"))
    os.kill(os.getpid(), signal.SIGKILL)
sys.exit(int(code))
"""


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    slurm = job_of_a_chain(tmp_path, monkeypatch)
    slurm.answer("scontrol", "exit 1")
    slurm.answer("sacct", "exit 1")
    Path(".snakemake").mkdir(exist_ok=True)
    Path("rule.py").write_text(RULE)
    monkeypatch.setenv("PYTHONPATH", PYTHONPATH)
    monkeypatch.setenv("UNBROKEN_START", "first")
    return slurm


class Chain:
    """The chain of a rule with `segments` and `retries`; each of its jobs has the next number in Slurm."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder, self._monkeypatch, self._number = folder, monkeypatch, 17

    def job(self, note: str, line: str = "", code: int = 1, segments: int = 3, retries: int = 1) -> int:
        """Run one job of the rule that ends so."""
        number = str(self._number)
        self._number += 1
        self._monkeypatch.setenv("SLURM_JOB_ID", number)
        command = (sys.executable, "rule.py", note, line, str(code))
        run = toy_run(KEY, attempts_without_progress=3)
        told = {"key": KEY, "keys": None, "name": "train", "script": "", "command": command, "start": "first"}
        told["memory_mb"] = (400, 800)
        spec = chain_spec(self._folder, run=run, last_segment=segments, retries=retries, **told)
        spec.write()
        return RuleWork(ChainJob(spec, number)).do()[0]

    @property
    def starts(self) -> int:
        return len(Path("starts").read_text()) if Path("starts").exists() else 0


@pytest.fixture
def chain(slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Chain:
    return Chain(tmp_path, monkeypatch)


def note(kind: EndKind | None) -> ExecNote:
    return ExecNote("train", STORE, kind, 1, "the inputs were changed")


@pytest.mark.process
def test_a_rule_whose_job_ends_well_is_done_and_is_not_run_again(chain: Chain) -> None:
    assert chain.job("finished", code=0) == 0
    assert rule_state.is_done(KEY)

    assert chain.job("finished", code=0) == 0
    assert chain.starts == 1


@pytest.mark.process
def test_after_a_pause_the_next_job_goes_on(chain: Chain) -> None:
    assert chain.job("paused", "paused") == 0, "a pause is no failure to be mailed"
    assert read_state(KEY) == RuleState(note(EndKind.PAUSED), pauses=1)
    assert not rule_state.is_done(KEY)

    chain.job("paused", "paused")
    assert read_state(KEY) == RuleState(note(EndKind.PAUSED), pauses=2)

    chain.job("finished", code=0)
    assert rule_state.is_done(KEY)
    assert chain.starts == 3


@pytest.mark.process
def test_a_pause_with_no_more_segments_than_before_is_a_failure(chain: Chain) -> None:
    """With --anew in the rule each job begins again, and would for ever."""
    chain.job("paused", "paused")
    History(Path(STORE, "history.jsonl")).path.unlink()
    chain.job("paused", "paused")
    assert read_state(KEY) == RuleState(note(EndKind.PAUSED), pauses=1, failures=1)
    History(Path(STORE, "history.jsonl")).path.unlink()

    with pytest.raises(Stop) as stop:
        chain.job("paused", "paused")

    why = "no more segments than before are done; has the rule --anew in it?"
    assert str(stop.value) == f"rule train failed 2 times: {why}"


@pytest.mark.process
def test_when_its_segments_are_used_up_the_run_stops(chain: Chain) -> None:
    chain.job("paused", "paused", segments=2)

    with pytest.raises(Stop) as stop:
        chain.job("paused", "paused", segments=2)

    assert str(stop.value) == (
        "train: its 2 segments are used up, with 20 steps done; to go on, raise `segments` of rule train, then start "
        "snakemake again"
    )


@pytest.mark.process
def test_a_refusal_stops_it_at_once(chain: Chain) -> None:
    with pytest.raises(Stop, match=r"^the inputs were changed$"):
        chain.job("refused", retries=9)

    assert chain.starts == 1


@pytest.mark.process
@pytest.mark.parametrize("retries", [0, 1])
def test_a_job_in_which_no_run_began_is_tried_as_often_as_the_rule_may_be_retried(chain: Chain, retries: int) -> None:
    for _ in range(retries):
        chain.job("", retries=retries)
    assert read_state(KEY) == RuleState(failures=retries)

    with pytest.raises(Stop) as stop:
        chain.job("", retries=retries)

    times = " 2 times" if retries else ""
    assert str(stop.value) == (
        f"rule train failed{times}: no segment of `unbroken exec`, or of a training, began in it"
    )
    assert chain.starts == retries + 1


@pytest.mark.process
def test_a_pause_between_two_failures_makes_the_second_one_the_first(chain: Chain) -> None:
    chain.job("")
    chain.job("paused", "paused")

    chain.job("")

    assert read_state(KEY) == RuleState(note(EndKind.PAUSED), pauses=1, failures=1)


@pytest.mark.process
def test_the_rest_of_a_rule_that_fails_after_its_program_is_done_is_a_failure(chain: Chain) -> None:
    with pytest.raises(Stop, match="rule train failed: the rest of the rule failed although its program was done"):
        chain.job("finished", retries=0)


@pytest.mark.process
def test_a_program_that_fails_is_judged_by_its_history_at_once(chain: Chain) -> None:
    chain.job("failed", "failed", retries=1)
    assert read_state(KEY).failures == 0

    with pytest.raises(Stop, match=r"^segment 1 failed 2 times; .*no such file"):
        chain.job("failed", "failed", retries=1)

    assert chain.starts == 2


@pytest.fixture
def kernel_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Lets this process be in the control group of a job in which the kernel has killed a process."""
    monkeypatch.setattr(memory, "CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(memory, "OWN_GROUPS", tmp_path / "own-groups")

    def kernel_killed(job: int) -> None:
        counter = tmp_path / "cgroup" / f"job_{job}" / "step_batch" / "memory.events"
        counter.parent.mkdir(parents=True)
        counter.write_text("oom_kill 1\n")
        (tmp_path / "own-groups").write_text(f"0::/job_{job}/step_batch\n")

    return kernel_killed


@pytest.mark.process
@pytest.mark.parametrize(("note", "line"), [("failed", "memory"), ("started", "killed")])
def test_a_rule_out_of_memory_gets_what_its_next_attempt_asks_for_and_stops_after_its_retries(
    chain: Chain,
    slurm: Slurm,
    caplog: pytest.LogCaptureFixture,
    kernel_killed: Callable[[int], None],
    note: str,
    line: str,
) -> None:
    """A training that is killed leaves no line; its own job knows why all the same."""
    caplog.set_level("INFO")
    queue = slurm.folder / "queue"
    slurm.answer("squeue", f"case $* in *--jobs*) grep '|17|' {queue};; *) cat {queue};; esac")
    slurm.shows("99_[2-3]", "PENDING", KEY)
    slurm.answer("scontrol", f'echo "$@" >> {slurm.folder}/changed')
    kernel_killed(17)
    chain.job(note, line, retries=1)
    spec = read(path_of(KEY))
    look_after_the_rest(ChainJob(spec, "17"), has_no_room=False)
    wanted = wanted_memory_mb(spec, "")
    slurm.shows(17, "OUT_OF_MEMORY", KEY)
    kernel_killed(18)
    with pytest.raises(Stop) as stop:
        chain.job(note, line, retries=1)

    assert "rule train ran out of memory (400 MB); tried again with 800 MB" in caplog.messages
    assert (wanted, spec.folder.store) == (800, Path(STORE))
    assert "update JobId=99_[2-3] MinMemoryNode=800" in (slurm.folder / "changed").read_text()
    assert str(stop.value) == "rule train ran out of memory (800 MB); raise its mem_mb, then start snakemake again"
    assert chain.starts == 2


@pytest.mark.process
def test_a_job_that_slurm_ends_is_no_failure(chain: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    chain.job("paused", "paused")
    monkeypatch.setattr(segment_process, "_received", {signal.SIGTERM})

    chain.job("", retries=0)
    chain.job("started", retries=0)

    assert read_state(KEY) == RuleState(note(None), pauses=1)


@pytest.mark.process
def test_while_the_program_works_the_next_tasks_are_submitted(chain: Chain, slurm: Slurm) -> None:
    """Once its run has begun, so a rule that fails at once submits nothing."""
    slurm.shows(17, "RUNNING", key=KEY)
    rule = Path("rule.py")
    rule.write_text(
        rule.read_text().replace(
            "sys.exit(",
            f"import time\nwhile not list(Path({str(slurm.folder)!r}).glob('told.*')): time.sleep(0.05)\nsys.exit(",
        )
    )

    chain.job("paused", "paused")

    assert slurm.said("--array") == ["1-4%1"]  # three, one of which is at work, and two in reserve
    assert slurm.said("--dependency") == ["afterany:17"]


# --- what is kept of it ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [RuleState(), RuleState(note(EndKind.PAUSED), 3, 1)])
def test_a_state_is_read_as_it_was_written(slurm: Slurm, state: RuleState) -> None:
    state.write(KEY)

    assert read_state(KEY) == state


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"note": {"name": 1}, "pauses": 0, "failures": 0}'])
def test_of_a_corrupt_state_nothing_is_known_yet(slurm: Slurm, text: str) -> None:
    RuleState(note(EndKind.PAUSED), 3, 1).write(KEY)
    (CHAINS / KEY / "state.json").write_text(text)

    assert read_state(KEY) == RuleState()


def test_the_files_of_its_run_lie_where_the_note_says(slurm: Slurm) -> None:
    assert not RuleState().folder(KEY).root.exists()
    assert RuleState(note(EndKind.PAUSED)).folder(KEY).root == Path(STORE)


def test_a_rule_that_snakemake_asks_for_again_keeps_its_pauses_and_nothing_else(slurm: Slurm) -> None:
    RuleState(note(EndKind.PAUSED), 3, 1).write(KEY)
    rule_state.note_done(KEY)

    rule_state.begin_again(KEY)

    assert not rule_state.is_done(KEY)
    assert read_state(KEY).of_start("second") == RuleState(note(EndKind.PAUSED), 3)
