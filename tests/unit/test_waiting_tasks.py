"""What waiting tasks are changed to, after one of them failed and as a new start wants it.

On a real cluster: test_endings_detached.py.
"""

from dataclasses import replace
from pathlib import Path

import pytest
from support.making import ATTEMPT
from support.slurm_commands import Slurm, chain_spec, job_of_a_chain

from unbroken.job import control, needs, submissions
from unbroken.job.spec import JobSpec
from unbroken.slurm.job import EndState, ListedJob
from unbroken.store.history import EndKind, History
from unbroken.store.layout import RunFolder

pytestmark = pytest.mark.process

FAILED = replace(ATTEMPT, kind=EndKind.FAILED, progress_to=ATTEMPT.progress_from, start="", to_checkpoint=None)
HOSTNAMES = """\
case "$3" in
    "node[1-2]") printf 'node1\\nnode2\\n';;
    "node[1-3]") printf 'node1\\nnode2\\nnode3\\n';;
    "node[2-4]") printf 'node2\\nnode3\\nnode4\\n';;
    *) exit 1;;
esac
"""


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    """This process is a job of a run on a partition of four nodes with 250 MB each."""
    monkeypatch.setenv("SLURM_JOB_PARTITION", "short")
    slurm = job_of_a_chain(tmp_path, monkeypatch)
    slurm.answer("scontrol", f'[ "$1" != update ] || {{ echo "$@" >> {tmp_path}/asked; exit 0; }}\n{HOSTNAMES}')
    return slurm


@pytest.fixture
def spec(tmp_path: Path, slurm: Slurm) -> JobSpec:
    return chain_spec(tmp_path)


def asked(slurm: Slurm) -> list[str]:
    path = slurm.folder / "asked"
    return path.read_text().splitlines() if path.exists() else []


def failed_on(nodes: list[str], **changes: object) -> None:
    """So many attempts without progress are in the history, two on each node."""
    history = History(RunFolder("demo").history)
    for token, node in enumerate([node for node in nodes for _ in range(2)], 1):
        history.append(replace(FAILED, token=token, slurm_node=node, **changes))  # type: ignore[arg-type]


# --- after a failure -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("excluded", "fresh"),
    [
        ("(null)", ["node4", "node3", "node2"]),
        ("node[1-2]", ["node4"]),
        ("node[1-3]", []),  # one more, and a partition of four has no node left: the job would wait for ever
        ("node4", ["node3", "node2"]),
        ("node[2-4]", []),
        ("node[7-9]", []),  # which ones these are Slurm does not say now
    ],
)
def test_waiting_tasks_avoid_no_more_nodes_than_their_partition_can_spare(
    excluded: str, fresh: list[str], spec: JobSpec, slurm: Slurm
) -> None:
    failed_on(["node1", "node2", "node3", "node4"])
    slurm.answer("squeue", f"echo '{excluded}'; echo '{excluded}'")

    told = list(needs.learn(spec, ["210_2", "210_3"], FAILED))

    mine = [] if excluded == "(null)" else [excluded]
    change = f"update JobId=210_[2-3] ExcNodeList={','.join([*mine, *fresh])}"
    assert asked(slurm) == ([change] if fresh else [])
    assert told == ([f"the waiting tasks avoid {', '.join(fresh)}, where it failed repeatedly"] if fresh else [])


def test_where_squeue_does_not_say_what_they_avoid_already_they_keep_that(spec: JobSpec, slurm: Slurm) -> None:
    failed_on(["node1"])
    slurm.answer("squeue", "exit 1")

    assert list(needs.learn(spec, ["210_2"], FAILED)) == []
    assert asked(slurm) == []


def test_after_a_job_out_of_memory_the_waiting_tasks_ask_for_more(spec: JobSpec, slurm: Slurm) -> None:
    failed_on(["node1"], job_state=EndState.OUT_OF_MEMORY, mem_mb=100)

    (line,) = needs.learn(spec, ["210_2", "211"], History(RunFolder("demo").history).attempts()[-1])

    assert asked(slurm) == ["update JobId=210_[2] MinMemoryNode=225", "update JobId=211 MinMemoryNode=225"]
    assert line == (
        "2 attempts ran out of memory; the waiting tasks now ask for 225 MB; to start with that, set mem_mb: 225"
    )


def test_they_ask_for_no_more_memory_than_a_node_of_the_partition_has(spec: JobSpec, slurm: Slurm) -> None:
    failed_on(["node1", "node2"], job_state=EndState.OUT_OF_MEMORY, mem_mb=100)

    list(needs.learn(spec, ["210_2"], History(RunFolder("demo").history).attempts()[-1]))

    assert asked(slurm) == ["update JobId=210_[2] MinMemoryNode=250"]


def test_a_change_that_slurm_refuses_is_told_with_what_to_type(spec: JobSpec, slurm: Slurm) -> None:
    failed_on(["node1"], job_state=EndState.OUT_OF_MEMORY, mem_mb=100)
    slurm.answer("scontrol", "exit 1")

    (line,) = needs.learn(spec, ["210_2"], History(RunFolder("demo").history).attempts()[-1])

    assert line == "out of memory; Slurm refused to raise the waiting tasks' limit; type mem_mb: 225"


def test_after_a_segment_that_paused_nothing_is_changed(spec: JobSpec, slurm: Slurm) -> None:
    failed_on(["node1"])

    assert list(needs.learn(spec, ["210_2"], ATTEMPT)) == []
    assert asked(slurm) == []


# --- after a new start -----------------------------------------------------------------------------------------------

BEFORE = ("-t", "60", "-p", "short", "--mem", "100", "--requeue")
# What squeue shows of a task: its time limit, partition and memory, kept by the stand-in for scontrol in one file each.
QUEUE = """\
case "$*" in *--array*--states=PENDING*) ;; *) exit 1;; esac
for file in {folder}/tasks/*; do basename $file; done
"""
UPDATE = """\
[ "$1" = update ] || exit 1
echo "$@" >> {folder}/asked
ids=${{2#JobId=101_\\[}}; ids=${{ids%\\]}}; code=0
for id in $(for span in $(echo $ids | tr , ' '); do seq ${{span%-*}} ${{span#*-}}; done); do
    {when}
    [ -d {folder}/tasks/101_$id ] || {{ code=1; continue; }}
    echo "shown ${{3#*=}}" > {folder}/tasks/101_$id/${{3%%=*}}
done
exit $code
"""


class Waiting:
    """Tasks 3 to 5 of array 101, which wait and were submitted by the words `BEFORE`."""

    def __init__(self, slurm: Slurm) -> None:
        self.slurm, self.numbers = slurm, ["101_3", "101_4", "101_5"]
        self.tasks = slurm.folder / "tasks"
        for number in self.numbers:
            (self.tasks / number).mkdir(parents=True)
            for name, value in {"TimeLimit": "1:00:00", "Partition": "short", "MinMemoryNode": "100M"}.items():
                (self.tasks / number / name).write_text(value)
        submission = submissions.take("demo", None)
        assert submission is not None
        submission.fill("101", BEFORE)
        slurm.answer("squeue", QUEUE.format(folder=slurm.folder))
        slurm.answer("scancel", f'echo "$@" >> {slurm.folder}/canceled')
        self.updates("true")

    def updates(self, when: str) -> None:
        """`when` runs before each task is changed."""
        self.slurm.answer("scontrol", UPDATE.format(folder=self.slurm.folder, when=when))

    def ask_for(self, name: str) -> list[str]:
        return [(path / name).read_text().strip() for path in sorted(self.tasks.iterdir())]

    @property
    def canceled(self) -> str:
        path = self.slurm.folder / "canceled"
        return path.read_text().strip() if path.exists() else ""


@pytest.fixture
def waiting(slurm: Slurm) -> Waiting:
    return Waiting(slurm)


def newest_words() -> tuple[str, ...]:
    newest = submissions.newest("demo")
    assert newest is not None
    return newest.words


def followed(waiting: Waiting, *words: str) -> list[str]:
    """What is told when the newest start wants these words."""
    spec = chain_spec(waiting.slurm.folder, words=words)
    line = control._found(spec, [ListedJob(number, "PENDING") for number in waiting.numbers], is_start=True).said
    return [line.removesuffix("; squeue does not answer")] if line else []


CHANGES = {
    "time": (("-t", "120"), "TimeLimit=120", ""),
    "partition": (("-p", "long"), "Partition=long", "; they lose their age in the queue"),
    "memory": (("--mem", "200"), "MinMemoryNode=200", ""),
}


@pytest.mark.parametrize(("option", "change", "age"), CHANGES.values(), ids=CHANGES)
def test_time_partition_and_memory_of_the_waiting_tasks_follow_the_plan(
    option: tuple[str, str], change: str, age: str, waiting: Waiting
) -> None:
    words = list(BEFORE)
    words[words.index(option[0]) + 1] = option[1]

    told = followed(waiting, *words)

    assert told == [f"the waiting tasks now ask for {change}{age}"]
    assert asked(waiting.slurm) == [f"update JobId=101_[3-5] {change}"]
    assert waiting.ask_for(change.partition("=")[0]) == [f"shown {option[1]}"] * 3
    assert waiting.canceled == ""
    assert newest_words() == tuple(words)
    assert followed(waiting, *words) == []  # the next start has nothing to do


def test_several_things_are_changed_together(waiting: Waiting) -> None:
    told = followed(waiting, "-t", "120", "-p", "long", "--mem", "100", "--requeue")

    assert told == ["the waiting tasks now ask for Partition=long, TimeLimit=120; they lose their age in the queue"]
    assert (waiting.ask_for("TimeLimit"), waiting.ask_for("Partition")) == (["shown 120"] * 3, ["shown long"] * 3)


def test_where_a_task_has_started_meanwhile_the_others_are_changed_and_keep_their_age(waiting: Waiting) -> None:
    """scontrol fails then, although it has changed those that wait [measured, 22.05]."""
    waiting.updates(f"[ $id != 3 ] || rm -r {waiting.tasks}/101_3")

    told = followed(waiting, "-t", "120", *BEFORE[2:])

    assert told == ["the waiting tasks now ask for TimeLimit=120"]
    assert waiting.ask_for("TimeLimit") == ["shown 120"] * 2
    assert waiting.canceled == ""


@pytest.mark.parametrize("when", ["exit 1", "[ $id != 4 ] || { code=1; continue; }"], ids=["all", "one"])
def test_where_slurm_refuses_the_change_the_tasks_are_submitted_again(when: str, waiting: Waiting) -> None:
    """Whether it was taken is read from each task: a limit that a user may not raise is refused for all of them."""
    waiting.updates(when)

    told = followed(waiting, "-t", "120", *BEFORE[2:])

    assert told == [
        "Slurm cannot change the waiting tasks as the config wants: they are submitted again and lose their age"
    ]
    assert waiting.canceled == "--state=PENDING 101"


@pytest.mark.parametrize(
    "words",
    [(*BEFORE, "--qos=fast"), BEFORE[:-1], ("-t", "60", "--mem", "100", "--requeue")],
    ids=["more", "less", "no -p"],
)
def test_what_slurm_cannot_change_of_waiting_tasks_is_submitted_again(words: tuple[str, ...], waiting: Waiting) -> None:
    told = followed(waiting, *words)

    assert told == [
        "Slurm cannot change the waiting tasks as the config wants: they are submitted again and lose their age"
    ]
    assert (waiting.canceled, asked(waiting.slurm)) == ("--state=PENDING 101", [])


def test_where_slurm_does_not_answer_the_tasks_stay_as_they_are(waiting: Waiting) -> None:
    for command in ("scontrol", "squeue", "scancel"):
        waiting.slurm.answer(command, "exit 1")

    told = followed(waiting, "-t", "120", *BEFORE[2:])

    assert told == ["the waiting tasks still ask for what the config said before: Slurm does not answer"]
    assert newest_words() == BEFORE


def test_the_same_words_in_another_order_change_nothing(waiting: Waiting) -> None:
    assert followed(waiting, "--requeue", *BEFORE[:-1]) == []

    assert (waiting.canceled, asked(waiting.slurm)) == ("", [])


def test_tasks_of_which_nothing_is_known_are_left_as_they_are(waiting: Waiting) -> None:
    submission = submissions.newest("demo")
    assert submission is not None
    submission.give_back()

    assert followed(waiting, "-t", "120") == []
    assert (waiting.canceled, asked(waiting.slurm)) == ("", [])
