"""Jobs of a user's own rule as chains: which they are, what is refused, and what a driver says of their ends."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from snakemake.resources import Resources
from snakemake_interface_common.exceptions import WorkflowError
from support.driver import Wildcards

from snakemake_executor_plugin_unbroken.segments import Segment, refuse_mistakes, work_of
from unbroken.job import rule_state, submissions
from unbroken.job.rule_state import RuleState
from unbroken.store.exec_note import ExecNote
from unbroken.store.history import EndKind
from unbroken.store.layout import CHAINS


def job(**changes: object) -> SimpleNamespace:
    """What is asked of a job of Snakemake."""
    values: dict[str, object] = {
        "is_group": lambda: False,
        "params": {},
        "resources": {"segments": 3},
        "wildcards": Wildcards(),
        "rule": SimpleNamespace(name="train"),
        "output": ["model.pt"],
    }
    return SimpleNamespace(**{**values, **changes})


def work(segments: int = 3, **changes: object) -> Segment:
    found = work_of(job(resources={"segments": segments}, **changes))
    assert found is not None and found.is_rule
    return found


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "changes",
    [
        {"is_group": lambda: True},
        {"resources": {}},
        {"resources": {"segments": 0}},
        {"resources": {"segments": "many"}},
        {"resources": {"segments": True}},
    ],
)
def test_other_jobs_are_plain(changes: dict[str, object]) -> None:
    assert work_of(job(**changes)) is None


def test_a_job_is_the_same_chain_at_each_start_also_with_more_segments() -> None:
    assert work(3).key == work(20).key
    assert work_of(job()) == work()


def test_two_jobs_of_a_rule_are_two_chains(here: Path) -> None:
    one, two = work(output=["a"]), work(output=["b"])

    submission = submissions.take(one.key, None)
    assert submission is not None
    submission.fill("17")

    found = submissions.newest(one.key)
    assert found is not None and found.job_id == "17"
    assert submissions.newest(two.key) is None


def test_the_notes_of_a_chain_cannot_be_those_of_a_run(here: Path) -> None:
    assert work().key.startswith(".rules/")
    assert (CHAINS / work().key).parent.name == ".rules"


def test_a_chain_is_named_by_its_rule_until_its_job_says_for_which_run_it_works(here: Path) -> None:
    named = work(wildcards=Wildcards(x="a"), output=["a.pt"])
    assert named.name == "train a"

    RuleState(ExecNote("net/de", "store", EndKind.PAUSED, 1), 1).write(named.key)

    assert named.name == "net/de"
    assert named.folder.history == Path("store/history.jsonl")


def test_a_job_of_a_rule_is_over_when_a_task_says_so_and_not_when_its_output_is_there(here: Path) -> None:
    Path("model.pt").touch()
    before = work().has_record()
    rule_state.note_done(work().key)

    assert (before, work().has_record()) == (False, True)


def rule(segments: object, **params: object) -> SimpleNamespace:
    return SimpleNamespace(name="train", resources=Resources.from_mapping({"segments": segments}), params=params)


@pytest.mark.parametrize("found", ["many", 0, -1, True])
def test_segments_that_are_no_number_are_refused_with_what_is_allowed(found: object) -> None:
    with pytest.raises(WorkflowError) as error:
        refuse_mistakes([rule(found)])

    assert str(error.value) == (
        f"unbroken: rule train: resources: segments: found {found!r}, allowed: a whole number, 1 or more"
    )


def test_a_function_for_segments_is_asked_later_and_none_is_no_mistake() -> None:
    refuse_mistakes([rule(20), rule(lambda wildcards: 20), rule(None)])


def test_rules_without_segments_and_segments_of_ours_are_no_mistake() -> None:
    plain = SimpleNamespace(name="all", resources=Resources.from_mapping({"mem_mb": 100}), params={})

    refuse_mistakes([plain, rule("many", assignment=1)])
