"""The command engine and a config that reads the wrong number: told, and without a loss of records."""

import sys
from pathlib import Path

import pytest
from support.command_jobs import command_job, command_segment
from support.toyrun import history

from unbroken.errors import UnbrokenError
from unbroken.store.history import EndKind
from unbroken.store.results import read_doubts

pytestmark = pytest.mark.process

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


def test_a_number_that_stays_0_is_no_success_and_once_the_pattern_is_mended_no_row_is_missing(tmp_path):
    line = refused(tmp_path, settings(r"^(\d+)"))

    assert "ended with exit code 85 and left no newer checkpoint; its restart files" in line
    assert (
        r"its restart files say 0 steps, as at the start: progress_pattern ^(\d+) matched once in state.txt, "
        "'0' at line 1: '0 counters, saved at 0.494'; it never grew, while the outputs are at 490; read "
    ) in line
    assert checkpoints(tmp_path) == []
    assert (command_job(tmp_path, settings()).places.output / "state.txt").is_file()
    outcomes = [command_segment(tmp_path, settings(), each).kind for each in (1, 2, 3)]
    assert (outcomes[-1], table(tmp_path)) == (EndKind.FINISHED, WHOLE)


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


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (
            settings(files=["status.txt"], progress_file="status.txt"),
            "; nothing that the program wrote matches status.txt",
        ),
        (settings(r"^time (\d+)"), r"progress_pattern: ^time (\d+); it begins with '0 counters, saved at 0.494'"),
        (settings(r"^(step) \d+"), r"progress_pattern: ^(step) \d+ matched 'step', allowed: a number"),
    ],
    ids=["no file", "no match", "no number"],
)
def test_restart_files_that_say_nothing_are_told_with_what_is_there(tmp_path, asked, told):
    assert told in refused(tmp_path, asked)


# --- a number that is not that of the program ---


@pytest.mark.parametrize(
    "read",
    [
        {"progress_pattern": HALF},
        {
            "progress_file": "",
            "progress_pattern": "",
            "progress_command": ["awk", "/step/ {{print 3*$2}}", "state.txt"],
        },
    ],
    ids=["too small", "too large"],
)
def test_a_number_that_is_read_wrong_costs_no_row(tmp_path, read):
    asked = settings(**{**read, "goal": 3000 if "progress_command" in read else 500})
    asked["start"] = [word.replace("{goal}", "1000") for word in asked["start"]]

    outcomes = [command_segment(tmp_path, asked, each).kind for each in (1, 2, 3)]

    assert outcomes[-1] is EndKind.FINISHED
    assert table(tmp_path) == WHOLE


def test_checkpoints_that_were_only_counted_are_gone_on_from(tmp_path):
    counted = {"progress_file": "", "progress_pattern": "", "goal": None, "outputs": {}}
    start = [word if word != "{goal}" else "1000" for word in settings()["start"]]
    command_segment(tmp_path, settings(**counted, start=start))

    record = command_segment(tmp_path, settings(start=start, outputs={}), segment=2)

    assert record.progress.done == 988


def test_a_number_outside_of_the_restart_files_is_read_when_the_program_has_left(tmp_path):
    elsewhere = settings(progress_file="log.txt")
    elsewhere["start"] = ["sh", "-c", '"$@"; code=$?; cp state.txt log.txt; exit $code', "sh", *elsewhere["start"]]

    outcomes = [command_segment(tmp_path, elsewhere, each).kind for each in (1, 2, 3)]

    assert outcomes[-1] is EndKind.FINISHED
    assert table(tmp_path) == WHOLE


@pytest.mark.parametrize(
    ("saved", "resumed", "told"),
    [
        # Its restart file says 30, is that of 200, and the rows from 60 on were never written.
        ("30", "seq 210 10 300", "rows: records between 50 and 210 are missing: "),
        # Its rows count from the restart, so that those before have the same numbers.
        ("50", "seq 10 10 50", "rows: begins at 10 and ends at 50, but the restart files say 300: "),
    ],
    ids=["lost in a buffer", "counted again"],
)
def test_rows_that_are_not_in_the_joined_table_are_a_doubt(tmp_path, saved, resumed, told):
    write = 'for i in $({}); do echo "$i 7" >> rows; done; echo {} > n; exit {}'
    started, resumed = write.format("seq 10 10 50", saved, 85), write.format(resumed, 300, 0)
    script = f"if [ -e n ]; then {resumed}; fi; {started}"
    asked = {"start": ["sh", "-c", script], "files": ["n"], "progress_file": "n", "progress_pattern": r"^(\d+)$"}

    outcomes = [command_segment(tmp_path, {**asked, "outputs": {"rows": "rows"}}, each).kind for each in (1, 2)]

    assert outcomes == [EndKind.PAUSED, EndKind.FINISHED]
    places = command_job(tmp_path, asked).places
    (doubt,) = read_doubts(places)
    assert doubt.startswith(told)
    assert f"doubt: {doubt}" in places.log(2).read_text()


def test_the_last_rows_of_a_program_that_is_done_for_good_are_in_the_results(tmp_path):
    """It saved 400 at last, and went on to 494 and its end."""
    script = 'echo 400 > n; for i in $(seq 100 100 400) 494; do echo "$i 7" >> rows; done; exit 0'
    asked = {"start": ["sh", "-c", script], "files": ["n"], "progress_file": "n", "progress_pattern": r"^(\d+)$"}

    command_segment(tmp_path, {**asked, "outputs": {"rows": "rows"}})

    rows = (command_job(tmp_path, settings()).places.final / "rows").read_text()
    assert rows == "100 7\n200 7\n300 7\n400 7\n494 7\n"


def test_a_number_that_begins_again_with_each_start_is_added_to_that_of_the_checkpoint(tmp_path):
    start = ["sh", "-c", 'echo step 30 > n; echo "$0" >> left; exit 0', "{remaining}"]
    asked = {"start": start, "files": ["n"], "progress_file": "n", "progress_pattern": r"step (\d+)"}
    asked |= {"progress_adds": True, "goal": 90, "exit_paused": [0]}

    records = [command_segment(tmp_path, asked, each) for each in (1, 2, 3)]

    assert [each.progress.done for each in records] == [30, 60, 90]
    assert records[-1].kind is EndKind.FINISHED
    assert (command_job(tmp_path, asked).places.final / "left").read_text().split() == ["90", "60", "30"]


@pytest.mark.parametrize("save_minutes", [0.003, 5])
def test_an_output_that_was_cut_and_never_written_again_is_in_the_result(tmp_path, save_minutes):
    first = "echo one > a.txt; sleep 0.6; echo step 30 > n; sleep 0.6; echo two >> a.txt; sleep 0.6; exit 85"
    start = ["sh", "-c", f"if [ -e n ]; then echo three > b.txt; sleep 0.6; echo step 60 > n; exit 0; fi; {first}"]
    asked = {"start": start, "files": ["n"], "progress_file": "n", "progress_pattern": r"step (\d+)", "goal": 60}

    records = [command_segment(tmp_path, asked, each, save_minutes=save_minutes) for each in (1, 2)]

    final = command_job(tmp_path, asked).places.final
    assert records[-1].kind is EndKind.FINISHED
    assert (final / "a.txt").read_text() == "one\n"
    assert (final / "b.txt").read_text() == "three\n"
