"""What the command engine reads in a folder: complete restart files, their progress, records of the outputs."""

import math
import os
import re

import pytest
from support.command_jobs import command_run

from unbroken.engines.command.placeholders import filled, filled_template, seconds_left
from unbroken.engines.files import tables
from unbroken.engines.files.reading import last_number, reading_of
from unbroken.engines.files.settings import ROWS, OutputSetting, program_of
from unbroken.engines.files.states import complete_states, copied, glob_pattern, matches, states_in
from unbroken.engines.files.tables import Tables, counted_again, is_joined, last_record, missing_between, records
from unbroken.errors import CheckpointError
from unbroken.system import copying

FRAME = rb"ITEM: TIMESTEP\n(\d+)\n"


def program(**settings):
    return program_of(command_run(start=["x"], **settings))


def complete(folder, program):
    return complete_states(states_in(folder, program.files), program)


def made(folder, *names, text="x"):
    for number, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
        os.utime(folder / name, (1000 + number, 1000 + number))


# --- which files, and when ---


def test_files_of_one_number_belong_together_and_the_furthest_comes_first(tmp_path):
    made(tmp_path, "md.90.coor", "md.90.vel", "md.100.coor", "md.100.vel", "md.110.coor", "box")

    found = states_in(tmp_path, ["md.{progress}.coor", "md.{progress}.vel", "box"])

    assert [(state.number, state.files) for state in found] == [
        ("100", ("box", "md.100.coor", "md.100.vel")),
        ("90", ("box", "md.90.coor", "md.90.vel")),
    ]


def test_next_takes_only_files_behind_which_there_is_another(tmp_path):
    made(tmp_path, "a.10", "a.20", "a.30")

    found = complete(tmp_path, program(files=["a.{progress}"], saved_by="next"))

    assert [state.number for state in found] == ["20", "10"]


def test_a_marker_counts_only_if_it_is_not_older_than_the_files(tmp_path):
    marked = program(files=["a", "b"], saved_by="marker", saved_marker="done")
    made(tmp_path, "a", "b", "done")
    assert [state.files for state in complete(tmp_path, marked)] == [("a", "b")]

    os.utime(tmp_path / "a", (2000, 2000))  # it is written again

    assert list(complete(tmp_path, marked)) == []


def test_nothing_is_complete_before_the_end_of_a_program_that_saves_when_it_leaves(tmp_path):
    made(tmp_path, "a")

    assert list(complete(tmp_path, program(files=["a"]))) == []


def test_files_that_change_while_they_are_copied_are_not_kept(tmp_path, monkeypatch):
    made(tmp_path / "in", "a", "b")
    (state,) = states_in(tmp_path / "in", ["*"])
    copy_open_file = copying.copy_open_file

    def slow_copy(source, descriptor, target):
        copy_open_file(source, descriptor, target)
        (tmp_path / "in" / "a").write_text("newer")

    monkeypatch.setattr(copying, "copy_open_file", slow_copy)

    assert not copied(state, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_files_that_are_written_again_after_they_were_found_complete_are_not_kept(tmp_path):
    made(tmp_path / "in", "a", "done")
    (state,) = complete(tmp_path / "in", program(files=["a"], saved_by="marker", saved_marker="done"))
    (tmp_path / "in" / "a").write_text("")  # the next save has begun

    assert not copied(state, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_marker_of_the_same_tick_as_a_file_may_be_that_of_the_save_before(tmp_path, monkeypatch):
    """The next save began in the tick of the marker: the file is empty, and as old as the marker."""
    marked = program(files=["a"], saved_by="marker", saved_marker="done")
    made(tmp_path / "in", "a", "done")
    (tmp_path / "in" / "a").write_text("")
    for name in ("a", "done"):
        os.utime(tmp_path / "in" / name, ns=(10**18, 10**18))
    (state,) = complete(tmp_path / "in", marked)

    monkeypatch.setattr(
        "unbroken.engines.files.states.time.sleep",
        lambda seconds: (tmp_path / "in" / "a").write_text("the next save"),
    )

    assert state.is_in_doubt
    assert not copied(state, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_marker_of_the_same_tick_as_a_file_that_stays_as_it_is_is_believed(tmp_path):
    made(tmp_path / "in", "a", "done")
    for name in ("a", "done"):
        os.utime(tmp_path / "in" / name, ns=(10**18, 10**18))
    (state,) = complete(tmp_path / "in", program(files=["a"], saved_by="marker", saved_marker="done"))

    assert copied(state, tmp_path / "out")


def test_links_are_inputs_and_never_restart_files(tmp_path):
    made(tmp_path, "data")
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "data").symlink_to(tmp_path / "data")

    assert states_in(tmp_path / "work", ["data"]) == []


@pytest.mark.parametrize(
    ("glob", "name", "is_match"),
    [
        ("out/*.dat", "out/a.dat", True),
        ("out/*.dat", "out/sub/a.dat", False),
        ("out/**", "out/sub/a.dat", True),
        ("**/a.dat", "a.dat", True),
        ("a.?", "a.b", True),
        ("a+b", "aab", False),
        ("t[0-9]*/U", "t12/U", True),
        ("a[!b]c", "abc", False),
        ("a[!b]c", "a/c", False),
        ("a[b", "a[b", True),
        ("x[[]1]", "x[1]", True),
    ],
)
def test_globs_mean_what_they_mean_in_a_shell(glob, name, is_match):
    assert bool(glob_pattern(glob).fullmatch(name)) is is_match


@pytest.mark.parametrize(("name", "is_match"), [("asm/K21/graph", True), ("asm/log", False), ("asm/tmp/a/b", False)])
def test_a_glob_after_an_exclamation_mark_leaves_out_what_it_means(tmp_path, name, is_match):
    globs = ["asm/**", "!asm/log", "!asm/tmp/**"]
    made(tmp_path, name)

    assert matches(globs, name) is is_match
    assert [state.files for state in states_in(tmp_path, globs)] == ([(name,)] if is_match else [])


# --- how far ---


@pytest.mark.process
def test_progress_is_read_in_a_text_in_json_and_from_a_command(tmp_path):
    made(tmp_path, "text", text="step 10\nstep 2.5e3\n")
    made(tmp_path, "json", text='{"runs": [{"step": 40}]}')
    by_text = program(files=["text"], progress_file="te*", progress_pattern=r"^step (\S+)$")
    by_json = program(files=["json"], progress_file="json", progress_pattern=r'"step": (\d+)')
    by_command = program(files=["json"], progress_command=["sh", "-c", "echo thinking; echo 7"])

    found = [reading_of(command_run(start=["x"]), each, tmp_path, "").done for each in (by_text, by_json, by_command)]

    assert found == [2500, 40, 7]


def test_progress_is_read_as_bytes_where_the_group_says_so(tmp_path):
    content = b"CHECKPOINT\0" + (70_000).to_bytes(8, "little") + b"\xff" * 100_000
    (tmp_path / "md.chk").write_bytes(content)
    pattern = r"(?s)\ACHECKPOINT\x00(?P<binary>.{8})|step (\d+)"
    binary = program(files=["md.chk"], progress_file="md.chk", progress_pattern=pattern)

    assert reading_of(command_run(start=["x"]), binary, tmp_path, "").done == 70_000
    assert last_number(tmp_path / "md.chk", pattern) == 70_000
    (tmp_path / "md.chk").write_text("step 12")
    assert reading_of(command_run(start=["x"]), binary, tmp_path, "").done == 12


UNREADABLE = {
    "no match": ({"progress_file": "a", "progress_pattern": "step ([0-9]+)"}, "nothing in it matches progress_pattern"),
    "no file": ({"progress_file": "b", "progress_pattern": "(1)"}, "no file in it matches progress_file: b"),
    "no number": ({"progress_file": "j", "progress_pattern": "n.: (.*)}"}, "matched '\"ten\"', allowed: a number"),
    "a command that fails": (
        {"progress_command": ["sh", "-c", "echo lost; exit 3"]},
        "progress_command sh -c echo lost; exit 3: exit code 3, last line 'lost', allowed: exit code 0 and a number",
    ),
}


@pytest.mark.process
@pytest.mark.parametrize("case", UNREADABLE)
def test_a_restart_file_that_says_nothing_is_named(tmp_path, case):
    made(tmp_path, "a", text="nothing")
    made(tmp_path, "j", text='{"n": "ten"}')
    settings, line = UNREADABLE[case]

    with pytest.raises(CheckpointError, match=re.escape(line)):
        reading_of(command_run(start=["x"]), program(files=["a", "j"], **settings), tmp_path, "")


def test_of_a_long_log_only_the_end_is_read(tmp_path):
    (tmp_path / "log").write_text("Step 1\n" + "x" * 70_000 + "\nStep 9\nStep 1")

    assert last_number(tmp_path / "log", r"^Step (\d+)$") == 1
    assert last_number(tmp_path / "none", r"^Step (\d+)$") is None


# --- records ---


def numbers(path, pattern, is_closed=True, begin=0):
    return [number for _, number in records(path, re.compile(pattern, re.MULTILINE), begin, is_closed=is_closed)]


def test_a_record_whose_number_may_still_grow_does_not_count(tmp_path):
    (tmp_path / "t").write_text("step,x\n1,a\n2,b\n30")

    assert numbers(tmp_path / "t", ROWS, is_closed=False) == [1, 2]


def test_records_are_the_same_however_the_file_is_read(tmp_path, monkeypatch):
    text = "head\n" + "".join(f"ITEM: TIMESTEP\n{step}\nITEM: ATOMS\n1 2 3\n" for step in range(0, 500, 7))
    (tmp_path / "t").write_text(text)
    whole = numbers(tmp_path / "t", FRAME)
    monkeypatch.setattr(tables, "CHUNK_BYTES", 17)
    monkeypatch.setattr(tables, "OVERLAP_BYTES", 64)

    assert numbers(tmp_path / "t", FRAME) == whole == list(range(0, 500, 7))


ROWS_PATTERN = re.compile(ROWS, re.MULTILINE)


def joined(folder, *pieces, up_to=math.inf):
    """Return what is joined of pieces with these texts; None if they are not joined."""
    paths = [folder / f"piece-{number}" for number in range(len(pieces))]
    for path, text in zip(paths, pieces, strict=True):
        path.write_text(text)
    is_one = is_joined(paths, ROWS_PATTERN, folder / "joined", up_to)
    assert (folder / "joined").exists() is is_one
    return (folder / "joined").read_text() if is_one else None


@pytest.mark.parametrize(
    ("pieces", "whole"),
    [
        (["step x\n1 a\n2 b\n3 c\n", "step x\n3 c\n4 d\n"], "step x\n1 a\n2 b\n3 c\n4 d\n"),
        (["1 a\n2 b\n3 old\n4 old\n", "3 c\n", "4 d\n"], "1 a\n2 b\n3 c\n4 d\n"),
        (["1 a\n2 b\n30 to", "3 c\n"], "1 a\n2 b\n3 c\n"),  # torn by a kill
        (["step x\n", "step x\n1 a\n", "step x\n"], "step x\n1 a\n"),
        (["1 a\n1 b\n2 a\n2 b\n", "2 a\n2 b\n"], "1 a\n1 b\n2 a\n2 b\n"),
        (["3 c\n4 d\n", "1 a\n2 b\n"], "1 a\n2 b\n"),  # from the beginning
        (["3 c\n2 b\n", "1 a\n"], None),
        (["no record\n", "none\n"], None),
    ],
)
def test_of_each_record_the_one_that_was_written_last_is_taken(tmp_path, pieces, whole):
    assert joined(tmp_path, *pieces) == whole


def test_of_a_table_the_records_up_to_a_checkpoint_can_be_taken(tmp_path):
    assert joined(tmp_path, "1 a\n2 b\n", "3 c\n4 d\n", up_to=3) == "1 a\n2 b\n3 c\n"


@pytest.mark.parametrize(
    ("piece", "table", "missing"),
    [
        ("10 a\n20 a\n30 a\n", "30 a\n40 a\n", None),
        ("10 a\n20 a\n30 a\n", "40 a\n50 a\n", None),
        ("10 a\n20 a\n30 a\n", "49 a\n", None),  # it counts from its restart
        ("10 a\n20 a\n30 a\n", "50 a\n60 a\n", (30, 50)),
        ("10 a\n10 b\n20 a\n20 b\n", "40 a\n40 b\n", (20, 40)),
        ("1 a\n2 a\n5 a\n10 a\n20 a\n", "50 a\n", None),
        ("1 a\n2 a\n5 a\n10 a\n20 a\n", "60 a\n", (20, 60)),
        ("10 a\n", "50 a\n60 a\n", (10, 50)),
        ("10 a\n", "50 a\n", None),  # how long is a step?
        ("30 a\n20 a\n", "90 a\n", None),  # its records do not count up
        ("head\n", "90 a\n100 a\n", None),
    ],
)
def test_records_that_are_missing_after_a_restart_are_found_by_the_steps_on_both_sides(tmp_path, piece, table, missing):
    for name, text in (("piece", piece), ("table", table)):
        (tmp_path / name).write_text(text)

    found = missing_between(tmp_path / "piece", tmp_path / "table", ROWS_PATTERN)

    assert (found.partition(" are missing: ")[0] or None) == (
        missing and f"records between {missing[0]} and {missing[1]}"
    )


@pytest.mark.parametrize(
    ("piece", "table", "done", "is_again"),
    [
        ("10 a\n20 a\n", "10 b\n20 b\n", 40, True),
        ("10 a\n20 a\n", "10 b\n20 b\n30 b\n40 b\n", 45, False),  # all of it is written again
        ("10 a\n20 a\n", "20 b\n30 b\n", 90, False),  # there is nothing to write any more
        ("10 a\n", "10 a\n", 20, True),
        ("10 a\n", "head\n", 20, False),
    ],
)
def test_a_table_that_counts_from_each_restart_is_noticed_at_the_end(tmp_path, piece, table, done, is_again):
    for name, text in (("piece", piece), ("table", table)):
        (tmp_path / name).write_text(text)

    assert bool(counted_again(tmp_path / "piece", tmp_path / "table", ROWS_PATTERN, done)) is is_again


def test_a_checkpoint_waits_for_a_later_record_in_every_table(tmp_path):
    tables_ = Tables([OutputSetting("t", ROWS_PATTERN)], tmp_path)
    assert not tables_.are_behind(20)  # no table yet
    (tmp_path / "t").write_text("10 1\n20 2\n")
    assert not tables_.are_behind(20)  # what else may be in the buffer?

    (tmp_path / "t").write_text("10 1\n20 2\n30 3\n")

    assert tables_.are_behind(20)


def test_the_last_record_is_found_before_a_long_text_and_is_no_rest_of_one(tmp_path):
    (tmp_path / "t").write_text("1 a\n2 b\n" + "x" * 600_000)
    assert last_record(tmp_path / "t", ROWS_PATTERN) == 2

    (tmp_path / "t").write_text("x\n" * 10 + "12345 a\n" + "x" * (64 * 1024 - 5))
    assert last_record(tmp_path / "t", ROWS_PATTERN) == 12345


@pytest.mark.parametrize("line", ["  4000 atoms", "  1 by 1 by 1 MPI processor grid", "100 steps in 3 s"])
def test_a_text_that_begins_with_a_number_is_no_row(tmp_path, line):
    (tmp_path / "t").write_text(f"{line}\n0 1.5 2\n{line}\n100\t7\n200,ok\n  3e2 nan\n")

    assert numbers(tmp_path / "t", ROWS) == [0, 100, 200, 300]


def test_rows_of_a_number_and_a_text_are_rows(tmp_path):
    (tmp_path / "t").write_text("step fruit\n10 apple\n20 pear\n30 plum")

    assert numbers(tmp_path / "t", ROWS) == [10, 20, 30]


# --- what is filled in ---


def test_double_braces_are_braces_and_templates_leave_braces_alone():
    assert filled("{{a}} {run} ${{x}}", {"run": "r"}) == "{a} r ${x}"
    assert filled_template("{run} @@run@@ @ @@", {"run": "r"}) == "{run} r @ @@"


def test_the_seconds_are_whole_and_never_none(tmp_path):
    from support.command_jobs import command_job, task_at

    settings = {"start": ["x"]}
    task = task_at(command_job(tmp_path, settings))

    assert 50 < seconds_left(task, program()) <= 59
    assert 30 < seconds_left(task, program(margin_seconds=20)) <= 40
    assert seconds_left(task, program(margin_seconds=1000)) == 1
