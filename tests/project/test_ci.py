"""The order and the end of .ci/run, with a stand-in for make that notes what it is asked for."""

import os
import shutil
import subprocess
import time

import pytest

from unbroken.config.package_files import root_folder

pytestmark = pytest.mark.process

MAKE = """\
#!/bin/sh
for target; do :; done
echo "$target $UNBROKEN_TESTS_DEADLINE" >> asked
[ -z "$UNBROKEN_TESTS_BEGIN_UNTIL" ] || echo "$target $UNBROKEN_TESTS_BEGIN_UNTIL $UNBROKEN_TESTS_HALF" >> parts
echo "pytest of $target"
case " $RED " in *" $target "*) exit 2 ;; esac
"""


# Each runs while others do.
BESIDE = {"presets-setup", "tensorflow-setup", "frameworks-setup", "slow-slurm-tests"}
LAST = {"tensorflow-tests", "frameworks-tests", "slow-tests"}
IN_TURN = ["prepare", "test", "presets-tests"]


@pytest.fixture
def ci(tmp_path):
    """Runs it; gives the exit code, the last line and what make was asked for."""
    for name in (".ci/run", "tools/step.sh"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(root_folder() / name, tmp_path / name)
    (tmp_path / "make").write_text(MAKE)
    (tmp_path / "git").write_text('#!/bin/sh\necho "$COMMIT"\n')
    for name in ("make", "git"):
        (tmp_path / name).chmod(0o755)

    def run(red="", minutes=None, commit="0"):
        (tmp_path / "asked").unlink(missing_ok=True)
        there = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHON": "true", "RED": red}
        there["COMMIT"] = commit
        # This test may be part of such a run.
        for name in ("CI_MINUTES", "TESTS_DEADLINE", "TESTS_BEGIN_UNTIL", "TESTS_HALF"):
            there.pop(f"UNBROKEN_{name}", None)
        there |= {"UNBROKEN_CI_MINUTES": minutes} if minutes else {}
        done = subprocess.run([tmp_path / ".ci" / "run"], env=there, capture_output=True, text=True)
        asked = [line.split() for line in (tmp_path / "asked").read_text().splitlines()]
        return done.returncode, done.stdout.splitlines()[-1], asked

    return run


def test_all_stages_run_and_their_limit_is_80_of_the_85_minutes(ci):
    before = int(time.time())

    code, last, asked = ci()

    assert code == 0
    assert last.startswith("== all of CI      ok ")
    in_turn = [target for target, _ in asked if target not in BESIDE]
    assert in_turn[:3] == IN_TURN
    assert set(in_turn[3:]) == LAST
    assert {target for target, _ in asked} > BESIDE
    assert before + 80 * 60 <= int(asked[0][1]) <= time.time() + 80 * 60


@pytest.mark.parametrize("red", [*IN_TURN, *sorted(BESIDE | LAST)])
def test_a_red_stage_makes_all_red(ci, red):
    code, last, _ = ci(red)

    assert code == 2
    assert last.startswith("== all of CI      FAILED (2) ")


@pytest.mark.parametrize(("minute", "seconds"), [("", 40 * 60), ("0", 360)])
def test_slow_tests_alone_have_a_moment_after_which_none_begins(ci, tmp_path, monkeypatch, minute, seconds):
    monkeypatch.setenv("UNBROKEN_CI_SLOW_UNTIL", minute)
    before = int(time.time())

    ci()

    parts = [line.split() for line in (tmp_path / "parts").read_text().splitlines()]
    assert {target for target, _, _ in parts} == {*LAST, "slow-slurm-tests"}
    assert len({(until, first) for _, until, first in parts}) == 1
    assert before + seconds <= int(parts[0][1]) <= time.time() + seconds
    assert parts[0][2].isdecimal()


def test_after_a_red_test_nothing_slow_is_begun(ci):
    _, _, asked = ci("test")

    assert {target for target, _ in asked} == {
        "prepare",
        "presets-setup",
        "tensorflow-setup",
        "frameworks-setup",
        "test",
    }


def test_two_commits_run_both_halves_of_the_slow_tests(ci, tmp_path):
    for commit in ("1234", "1235"):
        ci(commit=commit)

    parts = [line.split() for line in (tmp_path / "parts").read_text().splitlines()]
    assert {int(half) % 2 for _, _, half in parts[:4]} == {0}
    assert {int(half) % 2 for _, _, half in parts[4:]} == {1}


def test_of_each_half_it_is_not_always_the_same_slow_stage_that_may_find_no_time(ci):
    first = [next(target for target, _ in ci(commit=str(number))[2] if target in LAST) for number in range(6)]

    assert set(first[::2]) == set(first[1::2]) == LAST
