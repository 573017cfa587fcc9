"""What a program prints under the command engine: as a result, as a failure, and as the word that it is done."""

import shlex
from pathlib import Path

import pytest
from support.command_jobs import command_job, command_segment
from support.toyrun import history

from unbroken.errors import UnbrokenError
from unbroken.store.history import EndKind

pytestmark = pytest.mark.process

# Counts to its goal in four lines a segment, and saves after the second one; what comes after it is done again.
COUNTER = """
n=$(cat state.chk 2>/dev/null || echo 0)
for i in 1 2 3 4; do
  n=$((n + 1)); echo "step $n"
  [ $i -eq 2 ] && { echo $n > state.tmp; mv state.tmp state.chk; sleep 0.3; }
  [ $n -ge 8 ] && { echo $n > state.chk; echo "all done"; exit 0; }
done
exit ${1:-0}
"""


def settings(tmp_path: Path, script: str = COUNTER, **more: object) -> dict[str, object]:
    (tmp_path / "count.sh").write_text(script)
    base = {"start": ["sh", "count.sh", "85"], "inputs": ["count.sh"], "files": ["state.chk"]}
    return {**base, "progress_file": "state.chk", "progress_pattern": r"(\d+)", **more}


def test_what_it_prints_is_a_result_and_each_line_of_it_counts_once(tmp_path: Path) -> None:
    asked = settings(tmp_path, stdout="count.out", finished_pattern="^all done")

    for segment in range(1, 5):
        record = command_segment(tmp_path, asked, segment=segment)
        if record.kind is EndKind.FINISHED:
            break

    printed = (command_job(tmp_path, asked).places.final / "count.out").read_text().splitlines()
    assert printed == [*(f"step {n}" for n in range(1, 9)), "all done"]
    assert segment == 3


@pytest.mark.parametrize("stdout", ["", "count.out"])
def test_what_it_says_of_its_failure_is_told_and_its_exit_code_does_not_count(tmp_path: Path, stdout: str) -> None:
    script = "echo 5 > state.chk; echo 'Error in routine  c_bands (1)'; echo too bad >&2; exit 0"
    asked = settings(tmp_path, script, stdout=stdout, error_pattern=r"^Error in .*")

    with pytest.raises(UnbrokenError, match=r"it says: Error in routine c_bands \(1\)"):
        command_segment(tmp_path, asked)

    (attempt,) = history(command_job(tmp_path, asked))
    assert (attempt.kind, attempt.exit_code) == (EndKind.FAILED, 0)


def test_an_error_of_an_attempt_before_is_none_of_this_one(tmp_path: Path) -> None:
    script = "[ -e state.chk ] && { echo 9 > state.chk; exit 0; }; echo 5 > state.chk; echo Error; exit 1"
    asked = settings(tmp_path, script, stdout="count.out", error_pattern="^Error")
    with pytest.raises(UnbrokenError):
        command_segment(tmp_path, asked)

    assert command_segment(tmp_path, asked).kind is EndKind.FINISHED


def test_a_file_of_its_own_says_that_it_is_done(tmp_path: Path) -> None:
    script = "n=$(cat state.chk 2>/dev/null || echo 0); n=$((n + 1)); echo $n > state.chk; sleep 0.3\n"
    script += "[ $n -lt 2 ] || echo ' reached required accuracy' > OUTCAR"
    asked = settings(tmp_path, script, messages=["OUTCAR"], finished_pattern="reached required", exit_paused=[0])

    kinds = [command_segment(tmp_path, asked, segment=segment).kind for segment in (1, 2)]

    assert kinds == [EndKind.PAUSED, EndKind.FINISHED]


def test_a_kill_costs_a_segment_of_a_program_that_saves_as_it_leaves_and_that_is_said_before(tmp_path: Path) -> None:
    asked = settings(tmp_path, saved_by="exit", start=["sh", "-c", shlex.join(["sh", "count.sh"])])

    command_segment(tmp_path, asked)

    assert "it saves only when it leaves well: a kill costs all" in command_job(tmp_path, asked).log.read_text()
