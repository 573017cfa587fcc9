"""Parts of a rehearsal: what differs between two folders and where; file events; the verdict in words."""

import io
import itertools
import json
import os
import shutil
import struct
import tarfile
import zipfile

import pytest
from support.toyrun import toy_run

from unbroken.config.package_files import root_folder
from unbroken.engines.gromacs.frames import frame_at, frames
from unbroken.plan.driver_lines import unrehearsed
from unbroken.rehearsal import causes
from unbroken.rehearsal.compare import Difference, Kind, compare_folders
from unbroken.rehearsal.piece import Way
from unbroken.rehearsal.short_goal import rounded_down
from unbroken.runs.rehearsal import Rehearsal, Verdict, read_rehearsal
from unbroken.system.file_events import FileEvents, Happened

# The minute is part of the text in its header of 128 bytes.
MAT_FILE = "MATLAB 5.0 MAT-file, written by Octave 7.3.0, 2026-11-27 14:{:02d}:00 UTC".ljust(122) + "\0\0IM"


@pytest.fixture
def compared(tmp_path):
    """Compares two files of the same name; `one` and `other` are their contents."""

    def compared(name, one, other, position=lambda path, offset: ""):
        for folder, content in (("one", one), ("other", other)):
            (tmp_path / folder).mkdir()
            if content is not None:
                (tmp_path / folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return compare_folders(tmp_path / "one", tmp_path / "other", (), position)

    return compared


def table(*values):
    return "step,energy\n" + "".join(f"{step},{value}\n" for step, value in enumerate(values, 1))


def test_a_column_is_named_with_its_first_row(compared):
    (found,) = compared("t.csv", table(1.5, 2.5, 3.5, 4.5), table(1.5, 2.5, 3.75, 4.75))

    assert found.text() == "t.csv: column energy, from row 3 (step 3) on: 3.75 instead of 3.5"
    assert (found.kind, found.position) == (Kind.COLUMN, 3)


def test_a_few_rows_are_counted(compared):
    (found,) = compared("t.csv", table(1, 2, 3, 4, 5, 6), table(1, 9, 3, 4, 5, 6))

    assert found.text() == "t.csv: column energy, 1 rows, the first row 2 (step 2): 9 instead of 2"


def test_rows_that_come_twice_are_named(compared):
    (found,) = compared("t.csv", table(1, 2, 3), table(1, 2, 3) + "2,2\n3,3\n")

    assert found.text() == "t.csv: 5 rows instead of 3; 2 come twice, the first with step 2"
    assert found.is_repeated


def test_rows_that_are_missing_are_named(compared):
    (found,) = compared("t.tsv", "1\t5\n2\t6\n3\t7\n", "1\t5\n3\t7\n")

    assert found.text() == "t.tsv: 2 rows instead of 3; 1 are missing, the first with 1 2"


def test_a_line_of_a_text_is_named(compared):
    (found,) = compared("log.txt", "begin\nat 10:15\nend\n", "begin\nat 10:16\nend\n")

    assert found.text() == "log.txt: line 2: 'at 10:16' instead of 'at 10:15'"


def test_a_missing_file_is_named(compared):
    (found,) = compared("x.bin", b"\0\1", None)

    assert found.text() == "x.bin: is missing"


def test_two_long_lines_are_shown_around_what_differs(compared):
    (found,) = compared("log.txt", f"{'x' * 200} 1.5 {'y' * 90}\n", f"{'x' * 200} 2.5 {'y' * 90}\n")

    other, _, one = found.what.partition(" instead of ")
    assert (other, one) == (f"'...xxxxxxxxxxx 2.5 {'y' * 38}...'", f"'...xxxxxxxxxxx 1.5 {'y' * 38}...'")


def test_two_long_cells_and_values_are_shown_around_what_differs(compared, tmp_path):
    long = "1234567890" * 6
    (cell,) = compared("t.csv", table("0", f"{long}1"), table("0", f"{long}2"))
    shutil.rmtree(tmp_path / "one")
    shutil.rmtree(tmp_path / "other")
    (value,) = compared("state.json", json.dumps({"name": f"{long}1"}), json.dumps({"name": f"{long}2"}))

    assert cell.what == "...901234567890" + "2" + " instead of ...901234567890" + "1"
    assert value.what == "...901234567890" + "2'" + " instead of ...901234567890" + "1'"


def test_values_that_are_written_in_the_same_way_are_never_shown_as_two_equal_ones(compared, tmp_path):
    numpy = pytest.importorskip("numpy")
    for name, value in (("one", 0.0), ("other", -0.0)):
        numpy.save(tmp_path / f"{name}.npy", numpy.array([value]))

    (found,) = compared("a.npy", (tmp_path / "one.npy").read_bytes(), (tmp_path / "other.npy").read_bytes())

    assert found.what == "equal values in other bits in float64[1], such as -0.0 instead of 0.0"


def test_bytes_that_no_engine_knows_are_shown_in_hexadecimal(compared):
    (found,) = compared("x.bin", b"\0" * 40, b"\0" * 30 + b"\1\2")

    assert found.text() == "x.bin: from byte 30 on: 01 02 instead of 00 00 00 00 00 00 00 00; 32 bytes instead of 40"


@pytest.fixture
def folders(tmp_path):
    """Compares two folders of files: their contents by their names."""

    def folders(one, other, excepted=()):
        for folder, files in (("one", one), ("other", other)):
            for name, content in files.items():
                (tmp_path / folder / name).parent.mkdir(parents=True, exist_ok=True)
                (tmp_path / folder / name).write_text(content)
        found = compare_folders(tmp_path / "one", tmp_path / "other", excepted, lambda path, offset: "")
        return [each.text() for each in found]

    return folders


def test_a_file_that_one_side_lacks_is_named_in_both_directions_and_in_folders(folders):
    one = {"a.txt": "1", "sub/deep/b.txt": "2", "same.txt": "3"}

    assert folders(one, {"same.txt": "3", "sub/c.txt": "4"}) == [
        "a.txt: is missing",
        "sub/c.txt: is there beside the others",
        "sub/deep/b.txt: is missing",
    ]


PIECES = {f"segments/{number}/log.txt": "begun again" for number in ("001", "002", "002-002", "004")}


def test_a_file_that_segments_began_again_is_not_compared(folders):
    assert folders({"log.txt": "whole", "a": "1"}, {**PIECES, "a": "1"}) == []


def test_pieces_of_a_file_that_the_whole_run_lacks_are_named_once(folders):
    assert folders({"a": "1"}, {**PIECES, "a": "1"}) == [
        "log.txt: segments/001/log.txt to segments/004/log.txt is there beside the others"
    ]


def test_links_are_compared_by_where_they_lead(folders, tmp_path):
    for folder, target in (("one", "a"), ("other", "b")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "latest").symlink_to(target)
    (tmp_path / "one" / "same").symlink_to("nowhere")
    (tmp_path / "other" / "same").symlink_to("nowhere")

    assert folders({"a": "1", "b": "1"}, {"a": "1", "b": "1"}) == ["latest: a link to b instead of a link to a"]


def test_a_file_of_a_segment_with_another_content_is_named(folders):
    assert folders({"segments/002/x": "a\n"}, {"segments/002/x": "b\n"}) == [
        "segments/002/x: line 1: 'b' instead of 'a'"
    ]


def test_files_that_are_written_for_each_piece_are_excepted_in_segments_too_and_no_others(folders):
    pieces = {"segments/001/md.log": "1", "segments/002/md.log": "2", "segments/002/other.log": "3"}

    assert folders({"md.log": "whole"}, pieces, ("md.log",)) == [
        "other.log: segments/002/other.log is there beside the others"
    ]


def test_bytes_are_told_in_the_words_of_the_engine(compared):
    (found,) = compared("x.xtc", b"\0" * 40, b"\0" * 30 + b"\1" * 10, lambda path, offset: f"frame {offset // 10}")

    assert found.text() == "x.xtc: from frame 3 on"


def test_a_key_of_a_json_state_is_named(compared):
    one = json.dumps({"step": 3, "optimizer": {"lr": 0.5, "order": [1, 2, 3]}})
    other = json.dumps({"step": 3, "optimizer": {"lr": 0.25, "order": [1, 3, 2]}})

    found = compared("state.json", one, other)

    assert [each.text() for each in found] == [
        "state.json: optimizer.lr: 0.25 instead of 0.5",
        "state.json: optimizer.order: 2 of 3 entries differ, the first 3 instead of 2",
    ]


def test_keys_and_values_of_a_torch_file_are_named_without_torch(compared, tmp_path):
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 4}
    torch.save(state, tmp_path / "one.pt")
    state["optimizer"]["state"][1]["exp_avg"][0] += 0.5
    state["model"]["bias"] = state["model"]["bias"].half()
    torch.save(state, tmp_path / "other.pt")

    found = compared("state.pt", (tmp_path / "one.pt").read_bytes(), (tmp_path / "other.pt").read_bytes())

    assert [each.text() for each in found] == [
        "state.pt: model.bias: float16[2] instead of float32[2]",
        "state.pt: optimizer.state.1.exp_avg: 1 of 2 values differ, by 0.5 at most",
    ]


def test_the_same_values_in_other_bytes_are_told_as_such(compared):
    (found,) = compared("state.json", '{"loss": NaN, "step": 3}', '{"loss": NaN,  "step": 3}')

    assert (found.kind, found.text()) == (Kind.STORED, "state.json: the same values, stored in other bytes")


def test_a_mat_file_that_was_written_at_another_time_holds_the_same(compared):
    (found,) = compared("state.mat", f"{MAT_FILE.format(1)}values", f"{MAT_FILE.format(2)}values")

    assert (found.kind, found.text()) == (Kind.STORED, "state.mat: the same values, written at another time")


@pytest.mark.parametrize(("weights", "kind"), [(b"same", Kind.STORED), (b"else", Kind.STATE)])
def test_a_model_of_keras_that_was_written_at_another_time_holds_the_same(compared, weights, kind):
    def model(second, address, weights):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr(
                "metadata.json", f'{{"keras_version": "3.15.1", "date_saved": "2026-11-27@15:00:{second}"}}'
            )
            archive.writestr("config.json", f'{{"dtype": {{"name": "float32"}}, "shared_object_id": {address}}}')
            archive.writestr("model.weights.h5", weights)
        return file.getvalue()

    found = compared("model.keras", model(44, 140553741608080, b"same"), model(59, 140072174781136, weights))

    assert {each.kind for each in found} >= {kind}
    assert (kind is Kind.STORED) == (len(found) == 1)


def test_a_mat_file_with_other_values_differs(compared):
    (found,) = compared("state.mat", f"{MAT_FILE.format(1)}values", f"{MAT_FILE.format(1)}walues")

    assert found.kind is not Kind.STORED


def test_a_pickle_that_would_run_something_is_only_described(compared, tmp_path):
    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "was-run"),)

    import pickle

    def archive(value):
        with zipfile.ZipFile(tmp_path / "x.zip", "w") as file:
            file.writestr("x/data.pkl", pickle.dumps(value))
        return (tmp_path / "x.zip").read_bytes()

    (found,) = compared("x.pt", archive({"a": Trap(), "b": 1}), archive({"a": Trap(), "b": 2}))

    assert found.text() == "x.pt: b: 2 instead of 1"
    assert not (tmp_path / "was-run").exists()


def test_a_numpy_array_is_compared_by_its_values(compared, tmp_path):
    numpy = pytest.importorskip("numpy")
    for name, value in (("one", 1.0), ("other", 1.25)):
        numpy.save(tmp_path / f"{name}.npy", numpy.array([0.0, value]))

    (found,) = compared("a.npy", (tmp_path / "one.npy").read_bytes(), (tmp_path / "other.npy").read_bytes())

    assert found.what == "1 of 2 values differ, by 0.25 at most"


def test_events_tell_what_was_written_closed_and_renamed(tmp_path):
    with FileEvents(tmp_path) as events:
        (tmp_path / "a.tmp").write_text("x")
        os.rename(tmp_path / "a.tmp", tmp_path / "a")
        happened = events.next(1.0)

    kinds = [(event.what, event.name) for event in happened]
    assert kinds == [
        (Happened.CREATED, "a.tmp"),
        (Happened.WRITTEN, "a.tmp"),
        (Happened.CLOSED, "a.tmp"),
        (Happened.MOVED_FROM, "a.tmp"),
        (Happened.MOVED_TO, "a"),
    ]
    assert happened[3].cookie == happened[4].cookie != 0


def test_events_of_a_folder_that_comes_later_are_told(tmp_path):
    with FileEvents(tmp_path) as events:
        (tmp_path / "new" / "deep").mkdir(parents=True)
        events.next(1.0)
        (tmp_path / "new" / "deep" / "a").write_text("x")

        assert (Happened.WRITTEN, "new/deep/a") in [(event.what, event.name) for event in events.next(1.0)]


def test_events_in_a_folder_that_was_renamed_have_its_new_name(tmp_path):
    (tmp_path / "draft" / "deep").mkdir(parents=True)
    with FileEvents(tmp_path) as events:
        os.rename(tmp_path / "draft", tmp_path / "whole")
        os.rename(tmp_path / "whole", tmp_path / "last")
        (tmp_path / "last" / "deep" / "a").write_text("x")

        names = {event.name for event in events.next(1.0) if event.what is Happened.WRITTEN}

    assert names == {"last/deep/a"}


@pytest.mark.parametrize(("value", "rounded"), [(0.9, 0), (7.9, 7), (45, 45), (1234.5, 1200), (99_999, 99_000)])
def test_a_shorter_goal_is_a_round_number(value, rounded):
    assert rounded_down(value) == rounded


def test_a_verdict_comes_back_as_it_was_written(tmp_path):
    made = Rehearsal("demo", Verdict.DIFFERS, "x.csv: …", "abc", "2026-11-27T13:00:00Z", 12, ("one", "two"), 1.5)

    made.write(tmp_path)

    assert read_rehearsal("demo", tmp_path) == made
    assert made.line("other") == "rehearsed, before the run was changed: differs (x.csv: …)"


def test_a_verdict_that_cannot_be_read_is_none(tmp_path):
    (tmp_path / "results" / ".rehearsal").mkdir(parents=True)
    (tmp_path / "results" / ".rehearsal" / "demo.json").write_text('{"verdict": "')

    assert read_rehearsal("demo", tmp_path) is None


def test_the_frame_of_a_real_trajectory_is_named(tmp_path):
    recorded = root_folder() / "tests" / "recorded" / "gromacs.tar.gz"
    with tarfile.open(recorded) as archive:
        (member,) = [each for each in archive.getmembers() if each.name.endswith("parts/md.part0001.xtc")]
        data = archive.extractfile(member).read()
    (tmp_path / "md.xtc").write_bytes(data)
    found = list(frames(tmp_path / "md.xtc"))

    assert [frame.number for frame in found] == list(range(1, len(found) + 1))
    assert {later.step - frame.step for frame, later in itertools.pairwise(found)} == {found[1].step}
    assert frame_at(tmp_path / "md.xtc", found[2].begin + 60) == found[2]
    assert frame_at(tmp_path / "md.xtc", found[2].begin - 1) == found[1]


def test_a_frame_of_trr_is_named(tmp_path):
    """By the layout in trrio.cpp: two frames of two atoms with positions, in single precision."""

    def frame(step):
        text = struct.pack(">3i", 1993, 13, 12) + b"GMX_trn_file" + struct.pack(">10i", 0, 0, 36, 0, 0, 0, 0, 24, 0, 0)
        return text + struct.pack(">3i2f", 2, step, 0, step / 1000, 0.0) + bytes(36 + 24)

    (tmp_path / "md.trr").write_bytes(frame(0) + frame(500))

    assert frame_at(tmp_path / "md.trr", len(frame(0)) + 5).describe() == "frame 2 (step 500, 0.5 ps)"


def test_a_first_start_says_one_line_of_runs_that_were_not_rehearsed(tmp_path):
    runs = [toy_run(name=name) for name in ("a", "b", "good", "bad", "begun")]
    Rehearsal("good", Verdict.IDENTICAL, "", "x", "2026-11-27T13:00:00Z").write(tmp_path)
    Rehearsal("bad", Verdict.DIFFERS, "t.csv: rows", "x", "2026-11-27T13:00:00Z").write(tmp_path)
    (tmp_path / "results" / "begun" / "checkpoints").mkdir(parents=True)

    assert unrehearsed(runs, tmp_path) == [
        "not rehearsed: a, b; `unbroken rehearse a` shows within minutes whether it resumes",
        "bad: rehearsed: differs (t.csv: rows); it starts all the same",
    ]


def test_parameters_of_a_layer_that_stayed_frozen_are_named_first(compared, tmp_path):
    torch = pytest.importorskip("torch")

    def state(by):
        layers = {"0.0.weight": torch.full((2,), 1.0 + by), "1.weight": torch.full((2,), 1.0 + by / 10)}
        optimizer = {"state": {0: {"exp_avg": torch.full((2,), by)}}}
        torch.save({"model": layers, "optimizer": optimizer, "step": 3}, tmp_path / "saved.pt")
        return (tmp_path / "saved.pt").read_bytes()

    found = compared("state.pt", state(0.0), state(0.5))
    column = Difference("metrics.csv", Kind.COLUMN, "metrics.csv column loss", "column loss", position=3.0, key="loss")

    assert causes.likely([column], found, [(Way.KILL, 2.0)]) == (
        "it went on from 2 after a SIGKILL in mid-work, and differs at once: some of the state is not saved, or not "
        "put back; most different at the end: model.0.0.weight by 0.5, model.1.weight by 0.05; also the "
        "optimizer's state, column loss"
    )
