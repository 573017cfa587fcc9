"""What differs between two folders of results, and where."""

import io
import json
import os
import pickle
import zipfile
from functools import partial

import pytest

from unbroken.rehearsal.compare import compare_folders

LONG = "1234567890" * 6
# The minute is part of the text in its header of 128 bytes.
MAT_FILE = "MATLAB 5.0 MAT-file, written by Octave 7.3.0, 2026-11-27 14:{:02d}:00 UTC{}".format
PIECES = {f"segments/{number}/log.txt": "begun again" for number in ("001", "002", "002-002", "004")}


@pytest.fixture
def folders(tmp_path):
    """Compares two folders of files: their contents by their names."""

    def folders(one, other, excepted=()):
        for folder, files in (("one", one), ("other", other)):
            for name, content in files.items():
                (tmp_path / folder / name).parent.mkdir(parents=True, exist_ok=True)
                (tmp_path / folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return compare_folders(tmp_path / "one", tmp_path / "other", excepted)

    return folders


def texts(found):
    return [each.text() for each in found]


def table(*values):
    return "step,energy\n" + "".join(f"{step},{value}\n" for step, value in enumerate(values, 1))


def mat(minute, values):
    return MAT_FILE(minute, "").ljust(122) + "\0\0IM" + values


@pytest.mark.parametrize(
    ("name", "one", "other", "said"),
    [
        (
            "t.csv", table(1.5, 2.5, 3.5, 4.5), table(1.5, 2.5, 3.75, 4.75),
            "column energy, first in row 3 (step 3): 3.75 instead of 3.5",
        ),
        ("t.csv", table(1, 2), table(1, 2) + "2,2\n", "3 rows instead of 2; 1 come twice, the first with step 2"),
        ("t.tsv", "1\t5\n2\t6\n3\t7\n", "1\t5\n3\t7\n", "2 rows instead of 3; 1 are missing, the first with 1 2"),
        (
            "t.csv", table("0", f"{LONG}1"), table("0", f"{LONG}2"),
            "column energy, first in row 2 (step 2): ...9012345678902 instead of ...9012345678901",
        ),
        ("log.txt", "begin\nat 10:15\nend\n", "begin\nat 10:16\nend\n", "line 2: 'at 10:16' instead of 'at 10:15'"),
        (
            "log.txt", f"{'x' * 200} 1.5 {'y' * 90}\n", f"{'x' * 200} 2.5 {'y' * 90}\n",
            f"line 1: ...xxxxxxxxxxx 2.5 {'y' * 44} instead of ...xxxxxxxxxxx 1.5 {'y' * 44}",
        ),
        ("log.txt", "at 1\nend\n", "at 2\nmore\nend\n", "from line 1 on: 3 lines instead of 2"),
        ("x.bin", b"\0" * 40, b"\0" * 30 + b"\1\2", "from byte 30 on: 32 bytes instead of 40"),
        ("a.json", f'{{"n": "{LONG}1"}}', f'{{"n": "{LONG}2"}}', "n: ...9012345678902' instead of ...9012345678901'"),
        ("state.mat", mat(1, "values"), mat(1, "walues"), "content: other values in bytes[16]"),
        ("segments/002/x", "a\n", "b\n", "line 1: 'b' instead of 'a'"),
    ],
)  # fmt: skip
def test_a_difference_is_told_by_its_place_and_never_as_two_equal_texts(folders, name, one, other, said):
    assert texts(folders({name: one}, {name: other})) == [f"{name}: {said}"]


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [
        ("state.json", '{"loss": NaN, "n": 3}', '{"loss": NaN,  "n": 3}'),
        ("state.mat", mat(1, "values"), mat(2, "values")),
    ],
)
def test_the_same_values_in_other_bytes_are_no_difference(folders, name, one, other):
    assert folders({name: one}, {name: other}) == []


def test_a_file_that_one_side_lacks_is_named_in_both_directions_and_in_folders(folders):
    one = {"a.txt": "1", "sub/deep/b.txt": "2", "same.txt": "3"}

    assert texts(folders(one, {"same.txt": "3", "sub/c.txt": "4"})) == [
        "a.txt: is missing",
        "sub/deep/b.txt: is missing",
        "sub/c.txt: is extra",
    ]


def test_a_file_that_segments_began_again_is_not_compared(folders):
    assert folders({"log.txt": "whole", "a": "1"}, {**PIECES, "a": "1"}) == []


def test_files_that_are_written_for_each_piece_are_excepted_in_segments_too_and_no_others(folders):
    pieces = {"segments/001/md.log": "1", "segments/002/md.log": "2", "segments/002/other.log": "3"}

    found = folders({"md.log": "whole"}, pieces, ("md.log",))

    assert texts(found) == ["segments/002/other.log: is extra"]


def test_links_are_compared_by_where_they_lead(folders, tmp_path):
    for folder, target in (("one", "a"), ("other", "b")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "latest").symlink_to(target)
        (tmp_path / folder / "same").symlink_to("nowhere")

    found = folders({"a": "1", "b": "1"}, {"a": "1", "b": "1"})

    assert texts(found) == ["latest: a link to b instead of a link to a"]


def test_a_key_of_a_json_state_is_named(folders):
    one = json.dumps({"step": 3, "optimizer": {"lr": 0.5, "order": [1, 2, 3]}})
    other = json.dumps({"step": 3, "optimizer": {"lr": 0.25, "order": [1, 3, 2]}})

    assert texts(folders({"state.json": one}, {"state.json": other})) == [
        "state.json: optimizer.lr: 0.25 instead of 0.5",
        "state.json: optimizer.order: (1, 3, 2) instead of (1, 2, 3)",
    ]


def written(save, *values):
    """Return what `save` writes of some values into a file."""
    file = io.BytesIO()
    save(file, *values)
    return file.getvalue()


@pytest.mark.process
@pytest.mark.parametrize("has_checksums", [True, False])
def test_keys_and_values_of_a_torch_file_are_named_without_torch(folders, has_checksums):
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "half": torch.ones(2).bfloat16()}
    torch.serialization.set_crc32_options(has_checksums)
    one = written(lambda file: torch.save(state, file))
    state["optimizer"]["state"][1]["exp_avg"][0] += 0.5
    state["model"]["bias"] = state["model"]["bias"].half()
    state["half"][1] = 3.0
    other = written(lambda file: torch.save(state, file))
    torch.serialization.set_crc32_options(True)

    assert texts(folders({"state.pt": one}, {"state.pt": other})) == [
        "state.pt: model.bias: float16[2] instead of float32[2]",
        "state.pt: optimizer.state.1.exp_avg: 1 of 2 values differ, by 0.5 at most",
        "state.pt: half: 1 of 2 values differ, by 2 at most",
    ]


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        (1.0, 1.25, "1 of 2 values differ, by 0.25 at most"),
        (0.0, -0.0, "equal values in other bits in float64[2], such as -0.0 instead of 0.0"),
    ],
)
def test_arrays_of_numpy_and_safetensors_are_compared_by_their_values(folders, one, other, said):
    numpy = pytest.importorskip("numpy")
    safetensors = pytest.importorskip("safetensors.numpy")

    def files(value):
        array = numpy.array([0.0, value])
        archive = written(lambda file: numpy.savez(file, b=array))
        model = safetensors.save({"weights": array})
        return {"a.npy": written(numpy.save, array), "b.npz": archive, "c.safetensors": model}

    assert texts(folders(files(one), files(other))) == [
        f"a.npy: {said}", f"b.npz: b: {said}", f"c.safetensors: weights: {said}",
    ]  # fmt: skip


@pytest.mark.parametrize(("weights", "places"), [(b"same", []), (b"else", ["m.keras key model.weights.h5"])])
def test_a_model_of_keras_that_was_written_at_another_time_holds_the_same(folders, weights, places):
    def model(file, second, address, weights):
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("metadata.json", f'{{"keras": "3.15", "date_saved": "2026-11-27@15:00:{second}"}}')
            archive.writestr("config.json", f'{{"dtype": {{"name": "float32"}}, "shared_object_id": {address}}}')
            archive.writestr("model.weights.h5", weights)

    made = partial(written, model)
    one, other = made(44, 140553741608080, b"same"), made(59, 140072174781136, weights)

    assert [each.place for each in folders({"m.keras": one}, {"m.keras": other})] == places


def test_a_pickle_that_would_run_something_is_only_described(folders, tmp_path):
    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "was-run"),)

    def archive(file, value):
        with zipfile.ZipFile(file, "w") as made:
            made.writestr("x/data.pkl", pickle.dumps(value))

    one, other = (written(archive, {"a": Trap(), "b": value}) for value in (1, 2))

    assert texts(folders({"x.pt": one}, {"x.pt": other})) == ["x.pt: b: 2 instead of 1"]
    assert not (tmp_path / "was-run").exists()
