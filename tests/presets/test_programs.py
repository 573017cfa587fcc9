"""Each preset with its real program: in segments, killed, it comes to what one uninterrupted run comes to.

UNBROKEN_PRESET_KILLS is for how many kills each is run; `make presets` asks for what its case.yaml says.
"""

import os
import random
from pathlib import Path

import pytest
from support.disks import mount_small, unmount
from support.needs import require, skip_or_fail
from support.preset_cases import CASES, PATIENCE_SECONDS, PROGRAMS, Case, Pieces, differences, note, read_case, whole

pytestmark = [pytest.mark.process, pytest.mark.presets]

ALL = os.environ.get("UNBROKEN_PRESET_KILLS") == "all"
# So much earlier a segment is told to stop.
STOP_SECONDS = 1.0
NAMES = sorted(path.parent.name for path in CASES.glob("*/case.yaml"))


@pytest.fixture(params=NAMES)
def case(request: pytest.FixtureRequest) -> Case:
    found = read_case(request.param)
    require(*found.needs)
    if found.is_long and not ALL:
        pytest.skip("it takes minutes: make presets")
    if found.pip and not PROGRAMS.is_dir():
        skip_or_fail("missing: .venv-presets (make presets-setup)")
    return found


def test_a_run_that_is_killed_comes_to_the_results_of_one_that_is_not(case: Case, tmp_path: Path) -> None:
    """A segment that comes to its limit, one that is killed while it saves, one that is killed anywhere, the rest."""
    seconds = whole(case, case.copied(tmp_path / "whole"))
    rng, rounds, wanted = random.Random(case.name), [], case.kills if ALL else 1
    while sum(each.kills for each in rounds) < wanted:
        pieces = Pieces(case, case.copied(tmp_path / f"pieces-{len(rounds)}"), rng)
        rounds.append(pieces)
        before = sum(each.kills for each in rounds)
        if len(rounds) % 2:  # on a fast machine a short case is done in that time
            assert pieces.paused(STOP_SECONDS + max(case.first_save_seconds, seconds * 0.35)) in (0, 85), pieces.said()
        for at in range(min(wanted - before, 6)):
            if not pieces.killed(seconds * 0.6, in_a_save=not case.must_leave_well and at % 2 == 0):
                seconds *= 0.7  # the machine was busier when it was measured
                break
        assert pieces.ended() == 0, pieces.said()
        assert differences(case, tmp_path / "whole", pieces.folder) == [], pieces.said()
        assert pieces.ended() == 0, pieces.said()
        assert "done before, nothing is computed" in pieces.said().splitlines()[-1]
        assert len(rounds) < 3 * wanted + 3, "it ends before it can be killed; make the case longer"
    note(case, rounds)


def test_a_torn_newest_restart_file_is_noticed(case: Case, tmp_path: Path) -> None:
    if not case.torn:
        pytest.skip("nothing of it can be torn: see its case.yaml")
    seconds = whole(case, case.copied(tmp_path / "whole"))
    pieces = Pieces(case, case.copied(tmp_path / "pieces"), random.Random(1))

    assert pieces.paused(STOP_SECONDS + max(case.first_save_seconds, seconds * 0.3)) == 85, pieces.said()
    assert pieces.killed(seconds * 0.6, in_a_save=True), "it had ended; make the case longer"
    torn = pieces.tear()

    assert torn, "nothing was there to tear"
    assert pieces.ended() == 0, pieces.said()
    assert differences(case, tmp_path / "whole", pieces.folder) == [], pieces.said()


def test_a_full_disk_costs_nothing_that_was_saved(case: Case, tmp_path: Path) -> None:
    seconds = whole(case, case.copied(tmp_path / "whole"))
    disk = tmp_path / "disk"
    disk.mkdir()
    mount_small(disk, f"size={case.disk_mb}m")
    try:
        pieces = Pieces(case, case.copied(disk / "pieces"), random.Random(2))
        assert pieces.paused(STOP_SECONDS + max(case.first_save_seconds, seconds * 0.3)) == 85, pieces.said()
        fill(disk / "full")
        pieces.log = tmp_path / "full.log"

        code = pieces.call().wait(PATIENCE_SECONDS)  # 0 if what it writes had room

        (disk / "full").unlink()
        assert code == 0 or pieces.ended() == 0, pieces.said()
        assert differences(case, tmp_path / "whole", pieces.folder) == [], pieces.said()
    finally:
        unmount(disk)


def fill(path: Path) -> None:
    """Leave room on the disk for the notes of a segment, and hardly for what its program writes."""
    with path.open("wb", buffering=0) as file:
        for block in (1 << 20, 1 << 12):
            try:
                while True:
                    file.write(b"x" * block)
            except OSError:
                continue
        file.truncate(file.tell() - (256 << 10))
