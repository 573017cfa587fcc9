"""The command engine and a config that reads the wrong number: found out before it costs records of the outputs."""

import json
import sys
from pathlib import Path

import pytest
from support.command_jobs import command_job, command_segment
from support.toyrun import history

from unbroken.engines.files.holes import (
    MissingRecordsError,
    PieceEnd,
    StepColumn,
    confirm_behind,
    confirm_follows,
    confirm_whole,
)
from unbroken.errors import UnbrokenError
from unbroken.runs.segment_end import EndKind

COUNTER = Path(__file__).parents[1] / "support" / "counter.py"
RIGHT = r"^step (\d+)$"
HALF = r"^half (\d+)$"
WHOLE = "# a comment\nstep,value\n" + "".join(f"{step},{step * step}\n" for step in range(10, 1001, 10))


def settings(pattern=RIGHT, options=(), **changes):
    """494 steps a segment, a row each ten steps."""
    return {
        "start": [sys.executable, "-I", "-S", str(COUNTER), "--goal", "{goal}", *options],
        "files": ["state.txt"],
        "progress_file": "state.txt",
        "progress_pattern": pattern,
        "goal": 1000,
        "outputs": {"table.csv": "rows"},
        **changes,
    }


def table(base):
    return (command_job(base, settings()).places.final / "table.csv").read_text()


def checkpoints(base):
    return [path.name for path in sorted(command_job(base, settings()).places.checkpoints.glob("[0-9]*"))]


def refused(base, asked, segment=1):
    """The one line with which a segment fails."""
    with pytest.raises(UnbrokenError) as error:
        command_segment(base, asked, segment)
    (line,) = str(error.value).splitlines()
    return line


# --- a number that does not grow ---


def test_segments_of_a_right_config_leave_the_whole_table(tmp_path):
    outcomes = [command_segment(tmp_path, settings(), each).kind for each in (1, 2, 3)]

    assert outcomes == [EndKind.PAUSED, EndKind.PAUSED, EndKind.FINISHED]
    assert table(tmp_path) == WHOLE


def test_a_number_that_stays_0_is_no_success_and_the_line_says_what_matched(tmp_path):
    line = refused(tmp_path, settings(r"^(\d+)"))

    assert "ended with exit code 85 and left no newer checkpoint; its restart files" in line
    assert (
        r"its restart files say 0 steps, as at the start: progress_pattern ^(\d+) matched once in state.txt, "
        "'0' at line 1: '0 counters, saved at 0.494'; it never grew, while the outputs are at 490; read "
    ) in line
    assert checkpoints(tmp_path) == []
    assert (command_job(tmp_path, settings()).places.output / "state.txt").is_file()


def test_once_the_pattern_is_mended_no_row_is_missing(tmp_path):
    refused(tmp_path, settings(r"^(\d+)"))

    outcomes = [command_segment(tmp_path, settings(), each).kind for each in (1, 2, 3)]

    assert outcomes[-1] is EndKind.FINISHED
    assert table(tmp_path) == WHOLE


def test_a_number_that_falls_behind_is_no_success(tmp_path):
    """The first digit: 5, then 1 of 10."""
    first_digit = settings(r"^step (\d)", ["--steps", "5"])
    command_segment(tmp_path, first_digit)

    line = refused(tmp_path, first_digit, segment=2)

    assert (
        r"its restart files say 1 steps, after 5: progress_pattern ^step (\d) matched once in state.txt, '1' at line "
        in line
    )
    assert history(command_job(tmp_path, settings()))[-1].kind is EndKind.FAILED


def test_a_program_that_left_no_restart_file_is_told_so(tmp_path):
    line = refused(tmp_path, settings(files=["status.txt"], progress_file="status.txt"))

    assert "; no file in its folder matches status.txt; read " in line


def test_a_pattern_that_matches_nothing_or_no_number_is_told_with_what_is_there(tmp_path):
    nothing = refused(tmp_path, settings(r"^time (\d+)"))
    no_number = refused(tmp_path, settings(r"^(step) \d+"))

    assert nothing.endswith(r"progress_pattern: ^time (\d+); it begins with '0 counters, saved at 0.494'")
    assert no_number.endswith(r"progress_pattern: ^(step) \d+ matched 'step', allowed: a number")


# --- a number that is another one now ---


WAYS = {
    "a pattern": {"progress_pattern": HALF},
    "a command": {
        "progress_file": "",
        "progress_pattern": "",
        "progress_command": ["awk", "/half/ {{print $2}}", "state.txt"],
        "saved_by": "rename",
    },
}


@pytest.mark.parametrize("way", WAYS)
def test_a_checkpoint_that_says_another_number_now_is_not_gone_on_from(tmp_path, way):
    command_segment(tmp_path, settings(**{"saved_by": "rename"}))
    (made,) = checkpoints(tmp_path)

    line = refused(tmp_path, settings(**WAYS[way]), segment=2)

    assert line.startswith(f"runs.demo: checkpoint {made} was made as 494 steps, but now progress_")
    assert "247" in line
    assert line.endswith(
        "; its outputs are cut at 494, so records would be missing, or there twice; type what read 494, or set the old "
        "results aside and begin anew: unbroken restart demo"
    )
    assert [command_segment(tmp_path, settings(), each).kind for each in (2, 3)][-1] is EndKind.FINISHED
    assert table(tmp_path) == WHOLE


def test_checkpoints_that_were_only_counted_are_gone_on_from(tmp_path):
    counted = {"progress_file": "", "progress_pattern": "", "goal": None, "outputs": {}}
    start = [word if word != "{goal}" else "1000" for word in settings()["start"]]
    command_segment(tmp_path, settings(**counted, start=start))

    record = command_segment(tmp_path, settings(start=start, outputs={}), segment=2)

    assert record.progress.done == 988


def test_a_number_outside_of_the_restart_files_is_not_asked_again(tmp_path):
    """It is read when the program has left, and the checkpoint does not have it."""
    elsewhere = settings(progress_file="log.txt")
    elsewhere["start"] = ["sh", "-c", '"$@"; code=$?; cp state.txt log.txt; exit $code', "sh", *elsewhere["start"]]

    outcomes = [command_segment(tmp_path, elsewhere, each).kind for each in (1, 2, 3)]

    assert outcomes[-1] is EndKind.FINISHED
    assert table(tmp_path) == WHOLE


# --- records that are missing ---


def test_a_number_that_is_too_small_is_found_out_by_the_rows(tmp_path):
    command_segment(tmp_path, settings(HALF))

    line = refused(tmp_path, settings(HALF), segment=2)

    assert line.startswith(
        "runs.demo: table.csv: records are missing: it goes on at 500, but the last one kept is 240, and 250 came "
        r"behind it; so the restart files are not where their number says (progress_pattern ^half (\d+)$ matched "
    )
    assert "then type: unbroken restart demo; if records are left out on purpose, add the file to outputs_w" in line


def test_a_number_that_is_too_large_is_found_out_by_the_rows(tmp_path):
    twice = {
        "progress_file": "",
        "progress_pattern": "",
        "progress_command": ["awk", "/step/ {{print 3*$2}}", "state.txt"],
    }
    command_segment(tmp_path, settings(goal=9000, **twice))

    line = refused(tmp_path, settings(goal=9000, **twice), segment=2)

    assert "table.csv: records are missing: it goes on at 500, but the restart files say 1482; so the restart" in line


def test_an_output_may_have_gaps_on_purpose(tmp_path):
    asked = settings(HALF, outputs_with_gaps=["table.csv"], goal=500)
    asked["start"] = [word.replace("{goal}", "1000") for word in asked["start"]]

    outcomes = [command_segment(tmp_path, asked, each).kind for each in (1, 2, 3)]

    assert outcomes[-1] is EndKind.FINISHED
    assert table(tmp_path).endswith("\n230,52900\n240,57600\n")


def test_the_last_rows_of_a_program_that_is_done_for_good_are_in_the_results(tmp_path):
    """It saved 400 at last, and went on to 494 and its end."""
    script = 'echo 400 > n; for i in $(seq 100 100 400) 494; do echo "$i 7" >> rows; done; exit 0'
    asked = {"start": ["sh", "-c", script], "files": ["n"], "progress_file": "n", "progress_pattern": r"^(\d+)$"}

    command_segment(tmp_path, {**asked, "outputs": {"rows": "rows"}})

    rows = (command_job(tmp_path, settings()).places.final / "rows").read_text()
    assert rows == "100 7\n200 7\n300 7\n400 7\n494 7\n"


def test_the_ends_of_a_piece_are_noted(tmp_path):
    command_segment(tmp_path, settings())
    (made,) = command_job(tmp_path, settings()).places.checkpoints.glob("[0-9]*")
    noted = json.loads((made / "parts" / "pieces.json").read_text())

    assert noted == {
        "table.csv": {
            "head_bytes": 23, "first": 10, "last": 490, "cut": None, "smallest_step": 10, "largest_step": 10,
        }
    }  # fmt: skip


def end(first, last, cut=None, smallest=10.0, largest=10.0):
    return PieceEnd(0, first, last, cut, smallest, largest)


WHOLE_TABLES = {
    "steps of ten": [end(10, 100, 110), end(110, 200, 210)],
    "steps counted anew": [end(10, 100, 110), end(119, 199, 209)],
    "nothing was cut off, and then a long rest": [end(10, 100), end(5000, 5100, 5110)],
    "steps by the clock": [end(10, 95, 118, 12, 40), end(160, 300, 340, 20, 38)],
    "a piece without a record": [end(10, 100, 110), end(None, 100, 110, None, None), end(110, 120)],
    "rarer from now on": [end(10, 100, 110), end(1000, 9000, 10000, 1000, 1000)],
    "no column that counts up": [PieceEnd(5), PieceEnd(5)],
    "one record": [end(10, 10, None, None, None)],
}
TORN_TABLES = {
    "one record": [end(10, 100, 110), end(120, 200)],
    "many": [end(None, None, 10), end(500, 600)],
    "a piece without a record": [end(10, 100, 110), end(None, 100, 110, None, None), end(300, 400)],
    "by the clock": [end(10, 95, 118, 12, 40), end(300, 400, None, 20, 38)],
    "at the end": [end(10, 100, 110), end(None, 100, 110, None, None)],
}


@pytest.mark.parametrize("case", WHOLE_TABLES)
def test_a_table_that_may_be_whole_is_never_refused(case):
    confirm_whole("t", WHOLE_TABLES[case], done=WHOLE_TABLES[case][-1].last or 0)


@pytest.mark.parametrize("case", TORN_TABLES)
def test_a_table_that_lacks_what_was_written_once_is_refused(case):
    with pytest.raises(MissingRecordsError, match=r"^t: records are missing: "):
        confirm_whole("t", TORN_TABLES[case], done=500)


def test_a_table_without_a_column_that_counts_up_is_not_checked():
    steps = StepColumn(last=3.0)
    for number in (5.0, 7.0, 6.0, 100.0):
        steps.add(number)

    confirm_follows("t", end(1, 3, 5), 100.0, steps)
    confirm_behind("t", steps, done=1000.0)
