"""The promises that every engine keeps, over every engine that has a rule file; an engine brings its `CASE`."""

import importlib
import shutil

import pytest
from engines.conformance import Chain, engines
from support.slurm_at_hand import SlurmAtHand, single_jobs
from support.workdir import ROOT, WorkDir

from unbroken.engines.found import known_schemas

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
def chain(tmp_path, engine, case):
    return Chain(tmp_path / "chain", engine, case)


@pytest.fixture
def uninterrupted(tmp_path_factory, engine, case):
    """A finished run of one segment, and its final files."""
    if engine not in _wholes:
        single = Chain(tmp_path_factory.mktemp("whole") / engine, engine, case)
        single.configure_whole()
        assert single.run() == 0, single.said()
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
        chain = Chain(tmp_path_factory.mktemp("begun") / engine, engine, case)
        chain.configure(keep=3)
        assert chain.run_first_segment() == 0, chain.said()
        chain.keep()
        _begun[engine] = chain
    chain = _begun[engine]
    chain.restore()
    chain.configure(keep=3)
    return chain


@of_each()
def test_on_slurm_its_run_is_one_array(tmp_path, engine, case):
    work = WorkDir(tmp_path / "work")
    work.root.mkdir()
    for name in case.example_files:
        shutil.copyfile(ROOT / "examples" / engine / name, work.root / name)
    slurm = SlurmAtHand(work, tmp_path / "slurm")
    slurm.refuses()
    slurm.configure({"a": {"engine": engine, "segments": 3, "segment_minutes": 1, "settings": dict(case.settings)}})

    done = work.snakemake()

    assert single_jobs(done) == {}
    assert slurm.arrays == {"a": "1-5%1"}, done.text


@of_each(slow=SLOWEST)
def test_pieces_equal_the_whole(begun, whole):
    chain = begun

    assert chain.run_on_in_pieces() == 0, chain.said()

    assert chain.final() == whole
    assert [attempt["kind"] for attempt in chain.history()][:-1] == ["paused"] * (len(chain.history()) - 1)
    assert len(chain.history()) >= 2
    assert "does not exit" not in chain.said()


@of_each(slow=SLOW_TO_START)
def test_pieces_with_kills_equal_the_whole(chain, whole, case):
    chain.configure(segments=4, segment_minutes=20)  # only kills and warnings end its segments

    kills = chain.run_with_kills(seed=chain.engine)

    assert kills >= case.kills // 2
    assert chain.final() == whole


@of_each(slow=SLOW_TO_START)
def test_a_torn_newest_checkpoint_gives_way_to_the_one_before(begun, whole):
    chain = begun
    newest = (chain.results / "checkpoints" / "latest").resolve()
    data = [path for path in newest.rglob("*") if path.is_file() and path.name != "manifest.json"]
    torn = max(data, key=lambda path: path.stat().st_size)
    torn.write_bytes(torn.read_bytes()[:-1])

    assert chain.run() == 0, chain.said()

    reason = chain.results / "checkpoints" / ".quarantine" / f"{newest.name}.reason.json"
    assert "bytes, published with" in reason.read_text()
    assert chain.final() == whole


@of_each(slow=SLOWEST)
def test_another_computation_is_refused_before_anything_runs(begun, case):
    chain = begun
    before = chain.history()
    chain.configure(case.other_settings)

    assert chain.run() == 1

    assert f"unbroken: runs.{chain.results.name}: not the computation that checkpoint " in chain.said()
    assert chain.history() == before


@of_each(slow=SLOWEST)
def test_a_raised_goal_goes_on_where_the_run_ended(engine, case, request):
    if case.further_goal is None:
        assert "goal" not in known_schemas().engines[engine].keys
        return
    chain, _ = request.getfixturevalue("uninterrupted")
    chain.configure({**case.whole_settings, "goal": case.further_goal}, segments=2, segment_minutes=20)

    assert chain.run() == 0, chain.said()

    first, second = chain.history()
    assert (second["progress_from"], second["progress_to"]) == (first["progress_to"], case.further_goal)


@of_each(slow=SLOWEST)
def test_a_goal_lowered_below_what_is_done_ends_the_run_there(begun, case):
    if case.further_goal is None:
        return
    chain = begun
    done = chain.history()[-1]["progress_to"]
    chain.configure({"goal": max(1, int(done))}, segments=9, segment_minutes=20)

    assert chain.run() == 0, chain.said()

    last = chain.history()[-1]
    assert last["kind"] == "finished"
    assert last["progress_to"] < case.further_goal / 2, (done, last)


@of_each()
def test_a_program_that_never_advances_stops_its_run_with_one_line(chain):
    chain.configure(enter=["false"])

    assert chain.run() == 1

    log = f"logs/{chain.results.name}/001.1.log"
    failed = f"the program ended with exit code 1; nothing new was saved; read {log}"
    assert f"stopped: runs.{chain.results.name}: {failed}" in chain.said()
    assert "2 attempts without progress, no further one is made" in chain.said()
    assert len(chain.history()) == 2
