"""The promise: whenever a segment is killed, the next attempt goes on from a whole checkpoint and nothing is lost."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from protocol.kill_harness import KINDS
from support.toyrun import PYTHONPATH

pytestmark = pytest.mark.process

HARNESS = Path(__file__).with_name("kill_harness.py")


def all_cases(tmp_path: Path, scenario: str, part: int, *words: str, parts: int = 2) -> dict[str, object]:
    """What the harness found for one part of a scenario's cases."""
    command = [sys.executable, str(HARNESS), scenario, str(tmp_path), str(part), str(parts), *words]
    done = subprocess.run(command, env={"PYTHONPATH": PYTHONPATH}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def first_of(wrong: object) -> str:
    assert isinstance(wrong, list)
    return "\n".join(f"{case['kills']}: {case['error']}" for case in wrong[:3])


# Every second step each; of scenarios that take mostly the same steps one half is enough for a quick look.
@pytest.mark.parametrize(
    ("scenario", "part"),
    [
        *(("new", part) for part in (0, 1)),
        *((name, 0) for name in ("goal_raised", "newest_bad", "final_lost")),
        *(pytest.param(name, 1, marks=pytest.mark.slow) for name in ("goal_raised", "newest_bad", "final_lost")),
    ],
)
def test_a_segment_killed_before_after_or_within_any_step_goes_on_from_a_whole_checkpoint_to_the_same_end(
    tmp_path: Path, scenario: str, part: int
) -> None:
    found = all_cases(tmp_path, scenario, part, "kill", "10")

    assert first_of(found["wrong"]) == ""
    assert found["cases"] > 40, found["steps"]  # the harness sees the steps, also after a change of ours


@pytest.mark.parametrize(
    ("scenario", "part"),
    [
        ("new", 0),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in (("new", 1), ("goal_raised", 0), ("goal_raised", 1))),
    ],
)
def test_a_segment_that_sleeps_at_any_step_while_another_takes_over_does_no_harm_when_it_wakes_up(
    tmp_path: Path, scenario: str, part: int
) -> None:
    found = all_cases(tmp_path, scenario, part, "stop")

    assert first_of(found["wrong"]) == ""


# All calls of a run that comes to its end; of two that make mostly the same calls, one half each.
@pytest.mark.parametrize(
    ("scenario", "part"),
    [
        ("final_lost", 0),
        pytest.param("final_lost", 1, marks=pytest.mark.slow),
        pytest.param("newest_bad", 0, marks=pytest.mark.slow),
        pytest.param("newest_bad", 1, marks=pytest.mark.slow),
        pytest.param("new", 0, marks=pytest.mark.slow),
        pytest.param("goal_raised", 1, marks=pytest.mark.slow),
    ],
)
def test_a_disk_that_fails_at_any_call_costs_one_line_and_no_checkpoint(
    tmp_path: Path, scenario: str, part: int
) -> None:
    """Reads included; what leaves our code is an error of ours, and the next attempts come to the same end."""
    found = all_cases(tmp_path, scenario, part, "EIO")

    assert first_of(found["wrong"]) == ""
    assert found["cases"] > 150, found["steps"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scenario", "error", "part", "parts"),
    [
        *(("newest_bad", error, part, len(kind)) for kind in KINDS for part, error in enumerate(kind)),
        *(("new", kind[-1], part, len(KINDS)) for part, kind in enumerate(KINDS)),
    ],
)
def test_whatever_the_disk_says_at_any_line_costs_one_line_and_no_checkpoint(
    tmp_path: Path, scenario: str, error: str, part: int, parts: int
) -> None:
    found = all_cases(tmp_path, scenario, part, f"{error}-lines", parts=parts)

    assert first_of(found["wrong"]) == ""
    assert found["cases"] > 60 // parts, found["steps"]


@pytest.mark.slow
def test_the_harness_sees_a_publish_that_is_not_in_one_step(tmp_path: Path) -> None:
    """A harness that finds nothing proves nothing: with a checkpoint drafted in sight it must find torn ones."""
    spoilt = HARNESS.read_text().replace(
        "def main() -> None:\n",
        "def main() -> None:\n"
        "    def in_sight(draft, folder, **more):\n"
        "        if '/checkpoints/0' not in str(folder):\n"
        "            return rename(draft, folder, **more)\n"
        "        os.mkdir(folder)\n"
        "        for name in os.listdir(draft):\n"
        "            os.replace(os.path.join(draft, name), os.path.join(folder, name))\n"
        "    rename = os.rename\n"
        "    os.rename = in_sight\n",
    )
    harness = tmp_path / "kill_harness.py"
    harness.write_text(spoilt)
    command = [sys.executable, str(harness), "new", str(tmp_path / "runs"), "0", "2", "kill"]

    done = subprocess.run(command, env={"PYTHONPATH": PYTHONPATH}, capture_output=True, text=True, check=True)

    assert "visible and not whole" in first_of(json.loads(done.stdout)["wrong"])
