"""Which files belong to the result of a program, and how they are listed for a checkpoint."""

import errno
import os
import shutil
import sqlite3

import pytest
from support.command_jobs import command_run

from unbroken.engines.files import listing
from unbroken.engines.files.kinds import FileKinds
from unbroken.engines.files.listing import UnsteadyOutputError
from unbroken.engines.files.outputs import REWRITTEN, OutputList, read_outputs
from unbroken.engines.files.settings import program_of
from unbroken.errors import CheckpointError, FormatError

# --- what is what ---


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("state.00010.chk", "state"),
        ("deep/state.00010.chk", "output"),
        ("table.csv", "output"),
        ("out/traj.dcd", "output"),
        ("core_of_the_earth.txt", "output"),
        ("cache/x", "output"),
        (".hidden", "output"),
        ("core", "neither"),
        ("core.1234", "neither"),
        ("deep/core", "neither"),
        ("__pycache__/a.pyc", "neither"),
        ("deep/.cache/x", "neither"),
        ("scratch/big.tmp", "dropped"),
        ("rows.csv", "output"),  # a table that is joined by its records
        ("points.txt", "neither"),  # an input
        ("job.in", "neither"),  # a template
        ("STOP", "neither"),
        ("saved.mark", "neither"),
        ("DONE", "output"),
        (".walk-0123456789abcdef0123456789abcdef", "neither"),  # one of ours
    ],
)
def test_what_a_file_is(tmp_path, name, kind):
    for each in ("points.txt", "job.in"):
        (tmp_path / each).touch()
    run = command_run(
        base=tmp_path, start=["x", "@@stop@@"], files=["state.{progress}.chk"], discard=["scratch/*"],
        outputs={"rows.csv": "rows"}, inputs=["points.txt"], templates=["job.in"], stop_file="STOP",
        saved_by="marker", saved_marker="saved.mark", finished_file="DONE",
    )  # fmt: skip
    kinds = FileKinds(program_of(run))

    found = {
        "state": kinds.is_state(name),
        "output": kinds.is_output(name),
        "dropped": kinds.is_dropped(name),
    }

    assert [each for each, is_so in found.items() if is_so] == ([kind] if kind != "neither" else [])
    assert kinds.is_finished_mark(name) == (name == "DONE")


def test_a_list_says_of_each_file_how_long_it_is_and_who_began_it(kept):
    kept.write("table", "1\n2\n")
    kept.write("core", "dump")
    kept.write("young", "written after the state")
    one = kept.save({"table": 2})
    kept.again(one)
    kept.append("table", "2\n")
    kept.write("more/snap", "x")
    two = kept.save()

    first, second = read_outputs(one).files, read_outputs(two).files

    assert {name: (entry.resume_bytes, entry.segment) for name, entry in first.items()} == {"table": (2, 1)}
    assert {name: (entry.resume_bytes, entry.segment, entry.is_continued) for name, entry in second.items()} == {
        "more/snap": (1, 2, None),
        "table": (4, 1, True),
    }


@pytest.mark.parametrize("is_finished", [True, False])
def test_a_file_that_is_begun_again_and_shorter_after_the_last_state_is_in_the_result_alone(kept, is_finished):
    kept.write("report.txt", "a long one, written before the last state\n")
    kept.save()
    kept.write("report.txt", "short\n")

    listed = kept.save({"report.txt": 42}, is_at_end=True, is_finished=is_finished)

    assert [entry.size_bytes for entry in read_outputs(listed).files.values()] == ([6] if is_finished else [])


def test_what_a_program_writes_between_its_last_save_and_its_end_is_in_the_result(kept):
    """A segment that is over: the program will not write it again."""
    kept.write("table", "1\n")
    kept.write("timing.txt", "3 s\n")

    paused = kept.save({"table": 2}, is_at_end=True, has_saved_last=True)
    finished = kept.save({"table": 2}, is_at_end=True, is_finished=True)

    assert read_outputs(paused).files["timing.txt"].resume_bytes == 4
    assert read_outputs(finished).files["timing.txt"].size_bytes == 4


def test_the_mark_of_the_end_is_in_the_result_and_is_not_put_back(kept):
    kept.write("DONE", "")
    done = kept.save(is_at_end=True, is_finished=True)

    kept.again(done)  # the goal was raised
    assert kept.files() == {}
    kept.write("DONE", "")

    assert sorted(read_outputs(kept.save(is_at_end=True, is_finished=True)).files) == ["DONE"]


# --- files that are written again ---


def test_a_table_that_is_written_again_and_again_keeps_what_segments_before_wrote(kept):
    kept.tracker.kinds.is_table = lambda name: name == "rows"
    kept.write("rows", "1\n2\n")
    first = kept.save()
    kept.again(first)
    kept.tracker.kinds.is_table = kept.tracker.is_rewritten = lambda name: name == "rows"
    made = []
    for text in ("3\n", "# new\n3\n4\n"):
        kept.write("rows", text)
        made.append(read_outputs(kept.save()))

    assert [[piece.size_bytes for piece in each.pieces] for each in made] == [[4], [4]]
    assert [(each.files["rows"].size_bytes, each.files["rows"].is_rewritten) for each in made] == [
        (2, False),
        (10, False),
    ]


def test_a_database_that_grows_is_put_back_as_it_was(kept):
    path = kept.folder / "results.db"
    base = sqlite3.connect(path)
    base.execute("create table rows (number)")
    base.execute("insert into rows values (1)")
    base.commit()
    kept.save(opened=["results.db"])
    base.execute("insert into rows values (2)")
    base.commit()
    checkpoint = kept.save(opened=["results.db"])
    base.execute("insert into rows values (3)")
    base.commit()
    base.close()

    kept.again(checkpoint)

    assert sqlite3.connect(kept.folder / "results.db").execute("select * from rows").fetchall() == [(1,), (2,)]


@pytest.mark.parametrize("most", [2, 1000])
def test_a_file_that_is_written_while_it_is_copied_is_tried_again_and_then_left(kept, monkeypatch, most):
    kept.tracker.is_rewritten = lambda name: name == "status"
    kept.write("status", "5")
    copy, seen, before = listing.copying.copy_file, [], kept.tracker.listed

    def written_meanwhile(source, target):
        copy(source, target)
        if source.name == "status":
            seen.append(source)
            if len(seen) <= most:
                kept.append("status", "more")

    monkeypatch.setattr(listing.copying, "copy_file", written_meanwhile)
    if most == 2:
        checkpoint = kept.save()
        assert (checkpoint.folder / REWRITTEN / "status").read_text() == "5moremore"
        assert read_outputs(checkpoint).files["status"].is_rewritten
        return

    with pytest.raises(UnsteadyOutputError, match="status is written again while it is copied"):
        kept.save()
    assert kept.tracker.listed is before


# --- links ---


def test_a_link_that_leads_to_another_save_is_waited_for(kept):
    for number in ("5", "6"):
        kept.write(f"save_{number}/state", number)
    (kept.folder / "latest").symlink_to("save_6")
    draft = kept.root / "draft"
    (draft / "save_5").mkdir(parents=True)
    (draft / "save_5" / "state").write_text("5")

    with pytest.raises(UnsteadyOutputError, match="latest leads to save_6, which is another save"):
        kept.tracker.list_into(draft, None)

    (kept.folder / "latest").unlink()
    (kept.folder / "latest").symlink_to("save_5")
    kept.tracker.list_into(draft, None)
    assert kept.tracker.listed.links == {"latest": "save_5"}


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("link", "nowhere"),
        ("link", "/etc"),
        ("link", ".."),
        ("link", "data"),
        ("link", "state.5"),
        ("state", "state.5"),
    ],
)
def test_links_to_anything_else_are_kept_as_they_are(kept, name, target):
    kept.write("data/x", "x")
    kept.write("state.5", "s")
    (kept.folder / name).symlink_to(target)
    checkpoint = kept.save()

    kept.again(checkpoint)

    assert os.readlink(kept.folder / name) == target


# --- buffers ---


@pytest.mark.parametrize(
    ("text", "length", "is_doubt"),
    [
        ("1\n2\n3\n", 4, False),
        ("1\n2\n33\n", 5, True),  # within a line
        ("123\n" * 2000, 4096, False),  # a whole buffer, by chance
        ("123\n" * 2000, 4092, False),
        (b"\x00\x01\x02\x03" * 2000, 4096, False),  # no text
        ("Grüße\n" * 100, 8, False),
        ("1\n", 0, False),
    ],
)
def test_a_text_that_the_program_buffers_is_a_doubt_for_who_resumes_from_there(kept, text, length, is_doubt):
    kept.write("table", text)
    checkpoint = kept.save({"table": length}, opened=["table"])
    kept.append("table", "rest")

    finished = kept.save(is_at_end=True, is_finished=True)

    assert doubted(checkpoint) == (["table"] if is_doubt else [])
    assert read_outputs(finished).doubts == ()  # nobody resumed from there


def test_a_text_that_grows_by_whole_buffers_is_a_doubt_and_a_closed_file_without_a_last_line_end_is_none(kept):
    kept.write("result.json", '{"a": 1}')
    kept.write("table", "123\n" * 1024)
    first = kept.save(opened=["table"])
    kept.append("table", "456\n" * 1024)

    assert doubted(kept.save(opened=["table"])) == ["table"]
    assert read_outputs(first).doubts == ()


def doubted(checkpoint) -> list[str]:
    return [doubt.partition(":")[0] for doubt in read_outputs(checkpoint).doubts]


def test_a_table_of_which_nothing_was_flushed_is_a_doubt_once_it_grows_after_a_restart(kept):
    for name in ("table", "errors.log"):
        kept.write(name, "")
    checkpoint = kept.save(opened=["table", "errors.log"])
    kept.again(checkpoint)
    kept.append("table", "301 7\n")

    assert doubted(kept.save()) == ["table"]


@pytest.mark.parametrize(("line", "is_doubt"), [("301 7\n302", True), ("301 7\n", False)])
def test_a_table_of_which_an_attempt_flushed_nothing_is_a_doubt_once_it_is_seen_to_be_buffered(kept, line, is_doubt):
    kept.write("table", "100 1\n")
    first = kept.save(opened=["table"])
    kept.again(first)
    checkpoint = kept.save(opened=["table"])  # with lines in the buffer, or without
    kept.again(checkpoint)  # the program was killed
    kept.append("table", line)

    kept.save(opened=["table"])
    kept.append("table", " 8\n")
    finished = kept.save(is_at_end=True, is_finished=True)

    assert read_outputs(checkpoint).doubts == ()
    assert doubted(finished) == (["table"] if is_doubt else [])


# --- large, damaged, no room ---


@pytest.mark.parametrize(
    ("data", "error", "line"),
    [
        ("{", CheckpointError, r"list\.json: not a list of outputs"),
        ("[]", CheckpointError, r"list\.json: not a list of outputs"),
        ('{"schema_version": 1, "files": {"a": {}}}', CheckpointError, r"list\.json: not a list of outputs"),
        ('{"schema_version": 2}', FormatError, "format 2, this unbroken reads up to 1"),
    ],
)
def test_a_damaged_or_newer_list_is_refused_in_one_line(kept, data, error, line):
    kept.write("a", "x")
    checkpoint = kept.save()
    (checkpoint.folder / "unbroken-output" / "list.json").write_text(data)

    with pytest.raises(error, match=line):
        read_outputs(checkpoint)


def test_without_room_for_a_copy_nothing_is_decided(kept, monkeypatch):
    """The next try lists the same: a log that was begun again is still known to be."""
    kept.write("a.log", "first\n")
    kept.write("status", "1")
    one = kept.save()
    kept.again(one)
    kept.write("a.log", "second\n")
    kept.write("status", "2")
    kept.tracker.is_rewritten = lambda name: name == "status"

    def no_quota(*_: object) -> int:
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    with monkeypatch.context() as patched:
        patched.setattr(listing.copying, "copy_range", no_quota)
        with pytest.raises(OSError, match="quota") as raised:
            kept.save()
    shutil.rmtree(kept.root / "work" / f"draft-{kept.sequence}")
    made = read_outputs(kept.save())

    assert "status" in str(raised.value.filename2)
    assert [(piece.name, piece.size_bytes) for piece in made.pieces] == [("a.log", 6)]
    assert not made.files["a.log"].is_rewritten
    assert (made.doubts, isinstance(made, OutputList)) == ((), True)
