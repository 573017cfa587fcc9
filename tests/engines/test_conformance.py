"""The promises that every engine keeps, over every engine that has a rule file; an engine brings its `CASE`."""

import importlib
import shutil

import pytest
from engines.conformance import Chain, engines
from support.slurm_at_hand import SlurmAtHand, single_jobs
from support.workdir import WorkDir

from unbroken.engines.found import known_schemas
from unbroken.engines.testing import checks

pytestmark = pytest.mark.process


def marks_of(engine):
    """One process an engine, so that its uninterrupted run is made once; and the group that its tests belong to."""
    own = getattr(importlib.import_module(f"engines.test_{engine}"), "MARKS", ())
    return [pytest.mark.xdist_group(engine), *own]


# Whose programs take seconds to start, and whose kills are tried by tests of their own too.
SLOW_TO_START = ("dmtcp", "gromacs", "torch")
# Whose pieces are compared by tests of their own too.
SLOWEST = ("gromacs", "torch")


def of_each(slow=()):
    cases = ((engine, [pytest.mark.slow] if engine in slow else []) for engine in engines())
    return pytest.mark.parametrize(
        "engine", [pytest.param(engine, marks=[*marks_of(engine), *more]) for engine, more in cases]
    )


# Made once for each engine.  Of the tests that share the uninterrupted run at most one goes on with it; each finds the
# begun one as it was.
_wholes = {}
_begun = {}


@pytest.fixture
def case(engine):
    return importlib.import_module(f"engines.test_{engine}").CASE


@pytest.fixture
def chain(tmp_path, case):
    return Chain(tmp_path / "chain", case)


@pytest.fixture
def uninterrupted(tmp_path_factory, engine, case):
    """A finished run of one segment, and its final files."""
    if engine not in _wholes:
        single = checks.whole(case, tmp_path_factory.mktemp("whole") / engine, Chain)
        _wholes[engine] = single, single.final()
    return _wholes[engine]


@pytest.fixture
def whole(uninterrupted):
    """The final files of one uninterrupted run."""
    return uninterrupted[1]


@pytest.fixture
def begun(tmp_path_factory, engine, case):
    """A run whose first segment was cut."""
    if engine not in _begun:
        _begun[engine] = checks.begun(case, tmp_path_factory.mktemp("begun") / engine, Chain)
        _begun[engine].keep()
    chain = _begun[engine]
    chain.restore()
    chain.configure(keep=3)
    return chain


@of_each()
def test_on_slurm_its_run_is_one_array(tmp_path, engine, case):
    work = WorkDir(tmp_path / "work")
    work.root.mkdir()
    for path in case.files:
        shutil.copyfile(path, work.root / path.name)
    slurm = SlurmAtHand(work, tmp_path / "slurm")
    slurm.refuses()
    slurm.configure({"a": {"engine": engine, "segments": 3, "segment_minutes": 1, "settings": dict(case.settings)}})

    done = work.snakemake()

    assert single_jobs(done) == {}
    assert slurm.arrays == {"a": "1-5%1"}, done.text


@of_each(slow=SLOWEST)
def test_pieces_equal_the_whole(begun, whole):
    checks.check_pieces(begun, whole)


@of_each(slow=SLOW_TO_START)
def test_pieces_with_kills_equal_the_whole(chain, whole):
    checks.check_kills(chain, whole)


@of_each(slow=SLOW_TO_START)
def test_a_torn_newest_checkpoint_gives_way_to_the_one_before(begun, whole):
    checks.check_torn_checkpoint(begun, whole)


@of_each(slow=SLOWEST)
def test_another_computation_is_refused_before_anything_runs(begun):
    checks.check_other_computation(begun)


@of_each(slow=SLOWEST)
def test_a_raised_goal_goes_on_where_the_run_ended(engine, case, request):
    if case.further_goal is None:
        assert "goal" not in known_schemas().engines[engine].keys
        return
    checks.check_raised_goal(request.getfixturevalue("uninterrupted")[0])


@of_each(slow=SLOWEST)
def test_a_goal_lowered_below_what_is_done_ends_the_run_there(begun, case):
    if case.further_goal is not None:
        checks.check_lowered_goal(begun)


@of_each()
def test_a_program_that_never_advances_stops_its_run_with_one_line(chain):
    checks.check_stuck_program(chain)
