"""The promises that every engine keeps, each a check of one chain of segments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from unbroken.engines.testing.chain import RUN, Case, Chain, must
from unbroken.engines.testing.kills import KilledChain

Results = Mapping[str, bytes]
MOST_ATTEMPTS = 2  # without progress, by the default of the configuration


def check_engine(case: Case, folder: Path) -> None:
    """Run a small case of an installed engine whole, in pieces and with kills, in new folders below `folder`.

    It takes minutes: a run of the case each time.  Raise BrokenPromiseError, which is an AssertionError, with what
    snakemake printed at the first promise that the engine does not keep:

    - the results in pieces, and in pieces with the driver, the segment and the program killed, are those of the whole;
    - a torn newest checkpoint gives way to the one before;
    - settings of another computation are refused before anything runs;
    - a raised goal goes on where the run ended, and one lowered below what is done ends it there;
    - a program that never advances stops its run with one line.
    """
    single = whole(case, folder / "whole")
    results = single.final()
    for check in (check_pieces, check_torn_checkpoint):
        check(begun(case, folder / check.__name__), results)
    check_kills(KilledChain(folder / "kills", case), results)
    check_other_computation(begun(case, folder / "other"))
    if case.further_goal is not None:
        check_lowered_goal(begun(case, folder / "lowered"))
        check_raised_goal(single)
    check_stuck_program(Chain(folder / "stuck", case))


def whole(case: Case, folder: Path, chain: Callable[[Path, Case], Chain] = Chain) -> Chain:
    """Return a finished run of one segment that nothing interrupted."""
    single = chain(folder, case)
    single.configure_whole()
    single.run_to_end()
    return single


def begun(case: Case, folder: Path, chain: Callable[[Path, Case], Chain] = Chain) -> Chain:
    """Return a run whose first segment was cut."""
    made = chain(folder, case)
    made.configure(keep=3)
    made.run_first_segment()
    return made


def check_pieces(begun: Chain, whole: Results) -> None:
    """Check that a begun run, gone on in pieces, has the results of the whole."""
    begun.run_on_in_pieces()
    _must_equal(begun, whole)
    kinds = [attempt["kind"] for attempt in begun.history()]
    must(len(kinds) >= 2 and set(kinds[:-1]) == {"paused"}, f"the attempts ended as {kinds}\n{begun.said()}")
    must("does not exit" not in begun.said(), begun.said())


def check_kills(chain: KilledChain, whole: Results) -> None:
    """Check that a run whose driver, segment and program are killed again and again has the results of the whole."""
    chain.configure(segments=4, segment_minutes=20)  # only kills and warnings end its segments
    kills = chain.run_with_kills(seed=chain.case.engine)
    must(kills >= chain.case.kills // 2, f"only {kills} kills met something: the case is too short")
    _must_equal(chain, whole)


def check_torn_checkpoint(begun: Chain, whole: Results) -> None:
    """Check that a begun run whose newest checkpoint lost a byte goes on from the one before."""
    newest = (begun.places.checkpoints / "latest").resolve()
    data = [path for path in newest.rglob("*") if path.is_file() and path.name != "manifest.json"]
    torn = max(data, key=lambda path: path.stat().st_size)
    torn.write_bytes(torn.read_bytes()[:-1])
    begun.run_to_end()
    reason = begun.places.checkpoints / ".quarantine" / f"{newest.name}.reason.json"
    must(reason.exists() and "bytes, published with" in reason.read_text(), begun.said())
    _must_equal(begun, whole)


def check_other_computation(begun: Chain) -> None:
    """Check that a begun run refuses the settings of another computation before anything runs."""
    before = begun.history()
    begun.configure(begun.case.other_settings)
    must(begun.run() == 1, begun.said())
    must(f"unbroken: runs.{RUN}: not the computation that checkpoint " in begun.said(), begun.said())
    must(begun.history() == before, f"it worked\n{begun.said()}")


def check_raised_goal(single: Chain) -> None:
    """Check that a finished run with a further goal goes on where it ended."""
    goal = single.case.further_goal
    single.configure({**single.case.whole_settings, "goal": goal}, segments=2, segment_minutes=20)
    single.run_to_end()
    first, second = single.history()
    must((second["progress_from"], second["progress_to"]) == (first["progress_to"], goal), single.said())


def check_lowered_goal(begun: Chain) -> None:
    """Check that a begun run whose goal is lowered below what is done ends there."""
    done = begun.history()[-1]["progress_to"]
    begun.configure({"goal": max(1, int(done))}, segments=9, segment_minutes=20)
    begun.run_to_end()
    last = begun.history()[-1]
    must(last["kind"] == "finished" and last["progress_to"] < (begun.case.further_goal or 0) / 2, f"{done}, {last}")


def check_stuck_program(chain: Chain) -> None:
    """Check that a program that never advances stops its run with one line."""
    chain.configure(enter=["false"])
    must(chain.run() == 1, chain.said())
    must(f"stopped: runs.{RUN}: " in chain.said() and "exit code 1" in chain.said(), chain.said())
    must(f"{MOST_ATTEMPTS} attempts without progress, no further one is made" in chain.said(), chain.said())
    must(len(chain.history()) == MOST_ATTEMPTS, chain.said())


def _must_equal(chain: Chain, whole: Results) -> None:
    found = chain.final()
    names = sorted(name for name in found.keys() | whole.keys() if found.get(name) != whole.get(name))
    must(not names, f"{', '.join(names)}: not as of one uninterrupted run\n{chain.said()}")
