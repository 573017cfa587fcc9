"""Public trainings as their users have them, ported: in segments, killed, each computes what it computes in one piece.

UNBROKEN_TRAINING_CASES=all is for `make training-cases`: a fresh interpreter for each start, and all kills of a case.
"""

import os
import random
from importlib.util import find_spec
from pathlib import Path

import pytest
from support.needs import skip_or_fail
from support.toyrun import ROOT
from support.training_cases import (
    CASES,
    PATIENCE_SECONDS,
    STOPS,
    Case,
    TrainingRun,
    are_equal,
    differences,
    engine_case,
    note,
    read_case,
)
from training_cases_table import table

from unbroken.engines.testing.chain import compared
from unbroken.engines.testing.checks import check_kills
from unbroken.engines.testing.kills import KilledChain

pytestmark = pytest.mark.process

ALL = os.environ.get("UNBROKEN_TRAINING_CASES") == "all"


def cases(*, refused: bool) -> list[object]:
    """All cases of a kind, each with its markers; tests of one case share a process, and so its whole run."""
    found = []
    for case in (read_case(path.parent.name) for path in sorted(CASES.glob("*/case.yaml"))):
        if case.is_refused == refused:
            marks = [getattr(pytest.mark, name) for name in case.marks]
            marks.append(pytest.mark.xdist_group(f"case {case.name}"))
            found.append(pytest.param(case, id=case.name, marks=marks))
    return found


TRAININGS = pytest.mark.parametrize("case", cases(refused=False))
_wholes: dict[str, tuple[TrainingRun, dict[str, float]]] = {}


def skip_without(case: Case) -> None:
    for module in [*(["torch"] if case.is_of_torch else []), *case.needs]:
        if find_spec(module) is None:
            skip_or_fail(f"missing: {module} (pip install {module})")


def whole_of(case: Case, factory: pytest.TempPathFactory) -> tuple[TrainingRun, dict[str, float]]:
    """The uninterrupted run, made once, and what was counted in it."""
    skip_without(case)
    if case.name not in _wholes:
        run = TrainingRun(case, factory.mktemp(case.name) / "whole", random.Random(case.name), is_fresh=ALL)
        _wholes[case.name] = run, run.whole()
    return _wholes[case.name]


@TRAININGS
def test_a_training_that_is_killed_comes_to_the_same_weights_and_metrics(
    case: Case, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """One segment is asked to stop, others are killed at a step, among the files of a save, or at any moment."""
    whole, counted = whole_of(case, tmp_path_factory)
    rng, runs, wanted = random.Random(case.name), [], case.kills if ALL else 1
    while sum(each.kills for each in runs) < wanted:
        run = TrainingRun(case, tmp_path / f"pieces-{len(runs)}", rng, is_fresh=ALL)
        runs.append(run)
        left = int(counted["steps"])
        assert left > 3, "too few steps"
        run.stopped(rng.choice(STOPS), rng.randint(1, left // 2))
        for at in range(min(3, wanted - sum(each.kills for each in runs))):
            if not killed(run, (at + len(runs)) % 3, counted):
                break
        run.ends()
        assert differences(whole.folder, run.folder) == [], run.said()
        assert len(runs) < 3 * wanted + 3, "it ends before it can be killed; make the case longer"
    note(case, runs)


def killed(run: TrainingRun, kind: int, counted: dict[str, float]) -> bool:
    """Kill a segment in a save, at a step, or from outside; return False if it had ended before."""
    if kind == 1:
        return run.killed_at(event=run.rng.randint(1, max(1, int(counted["events"] / 4))))
    if kind == 2:
        return run.killed_at(step=run.rng.randint(1, max(1, int(counted["steps"] / 4))))
    return run.killed_after(run.rng.uniform(0, counted["seconds"] / 3))


@TRAININGS
def test_a_restore_that_is_broken_on_purpose_is_seen(
    case: Case, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    whole, counted = whole_of(case, tmp_path_factory)
    if not ALL and case.name != "mnist":
        pytest.skip("make training-cases")
    stopped = TrainingRun(case, tmp_path / "stopped", random.Random(case.name), is_fresh=False)
    stopped.stopped("USR1", int(counted["steps"] * 0.4))
    for lost in case.broken:
        run = stopped.copied(tmp_path / lost)

        code = run.start(broken=[lost]).wait(PATIENCE_SECONDS)

        assert code or differences(whole.folder, run.folder), f"without {lost} it computes the same: {run.said()}"


@TRAININGS
def test_the_ported_script_computes_what_the_script_computed(
    case: Case, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if not ALL:
        pytest.skip("make training-cases")
    for module in case.before_needs:
        pytest.importorskip(module, reason=f"missing: {module}, which before.py imports")
    whole, _ = whole_of(case, tmp_path_factory)
    before = TrainingRun(case, tmp_path / "before", random.Random(0), is_fresh=False)

    before.ends("before.py")

    for here, there in case.computes.items():
        assert are_equal(whole.folder / "final" / here, before.root / there), f"{here} is not {there} of before.py"


@pytest.mark.slow
@pytest.mark.parametrize("case", [each for each in cases(refused=False) if each.values[0].engine])
def test_a_chain_of_the_engine_whose_processes_are_killed_comes_to_the_same(
    case: Case, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The driver, the segment, or the training itself is killed, in a workflow of the engine torch."""
    whole, _ = whole_of(case, tmp_path_factory)
    chain = KilledChain(tmp_path / "chain", engine_case(case, tmp_path / "python"))

    check_kills(chain, compared(whole.folder / "final", chain.case))


@pytest.mark.parametrize("case", cases(refused=True))
def test_what_cannot_be_right_is_refused_before_the_first_step(case: Case, tmp_path: Path) -> None:
    skip_without(case)
    run = TrainingRun(case, tmp_path / "refused", random.Random(0), is_fresh=ALL)

    code = run.start().wait(PATIENCE_SECONDS)

    assert code not in (0, 85), run.said()
    assert not (run.root / "began").exists(), "a step was done"
    said = [line for line in run.said().splitlines() if case.message in line]
    assert said, run.said()
    assert case.ranks > 1 or run.said().rstrip().endswith(said[-1])  # after it a launcher says that a rank has ended
    note(case, [run])


def test_the_table_shows_the_cases_as_they_are() -> None:
    results = (ROOT / "docs" / "training-cases.jsonl").read_text().splitlines()

    assert table(results) in (ROOT / "docs" / "evidence.md").read_text(), (
        "make training-cases WRITE=1, or the tool alone"
    )
