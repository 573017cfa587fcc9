"""A file that is half of one save and half of another, and a checkpoint that holds such files."""

import io
import json
import os

import pytest
from support.toyrun import toy

from unbroken.rehearsal.wrong_restore import make_wrong, mixed, shortened
from unbroken.store.checkpoints import Store
from unbroken.store.layout import RunFolder
from unbroken.store.select import verify


def test_numbers_of_a_text_are_those_of_the_other_but_for_the_progress():
    assert mixed(b"step 150\nvalue 1.5 -2e3\n", b"step 90\nvalue 0.25 7\n", 150.0) == b"step 150\nvalue 0.25 7\n"


def test_values_of_json_are_those_of_the_other_but_for_the_progress_and_what_only_one_has():
    right = {"step": 150, "nested": {"lr": 0.5, "kept": [1, 2, 3]}, "new": 1}
    other = {"step": 90, "nested": {"lr": 0.25, "kept": [9, 2]}, "old": 2}

    found = mixed(json.dumps(right).encode(), json.dumps(other).encode(), 150.0)

    assert json.loads(found) == {"step": 150, "nested": {"lr": 0.25, "kept": [9, 2, 3]}, "new": 1}


def test_the_later_half_of_what_differs_in_other_files_is_that_of_the_other():
    assert mixed(b"\0\1\1same\2\2", b"\0\7\7same\7\7", 1.0) == b"\0\1\1same\7\7"


@pytest.mark.parametrize(
    ("right", "other"),
    [
        (b'{"step": 150}', b'{"step": 90}'),  # nothing but the progress
        (b"150\n", b"90\n"),
    ],
)
def test_progress_alone_is_no_state(right, other):
    assert mixed(right, other, 150.0) == right


@pytest.mark.process
@pytest.mark.parametrize("has_checksums", [True, False])
def test_tensors_of_a_torch_file_are_those_of_the_other_and_its_step_is_right(has_checksums):
    torch = pytest.importorskip("torch")

    def saved(values, step):
        file = io.BytesIO()
        torch.serialization.set_crc32_options(has_checksums)
        torch.save({"weights": torch.tensor(values), "step": step}, file)
        torch.serialization.set_crc32_options(True)
        return file.getvalue()

    found = torch.load(io.BytesIO(mixed(saved([1.0, 2.0], 150), saved([3.0, 4.0], 90), 150.0)), weights_only=True)

    assert (found["weights"].tolist(), found["step"]) == ([3.0, 4.0], 150)


def test_arrays_of_a_compressed_numpy_file_are_those_of_the_other():
    numpy = pytest.importorskip("numpy")

    def saved(values):
        file = io.BytesIO()
        numpy.savez_compressed(file, a=numpy.array(values))
        return file.getvalue()

    assert numpy.load(io.BytesIO(mixed(saved([1, 2]), saved([3, 4]), 1.0)))["a"].tolist() == [3, 4]


def test_an_output_lacks_one_of_its_last_lines():
    assert shortened(b"a\nb\nc\n") == b"a\nc\n"


@pytest.mark.process
def test_the_newest_checkpoint_before_the_goal_is_valid_and_wrong_and_links_to_its_files_are_not(tmp_path):
    toy(tmp_path, goal=40, save_steps=10, keep=9)
    places = RunFolder("demo", tmp_path)
    store = Store(places.checkpoints)
    newest = [each for each in store.readable() if not each.passport.is_finished][-1]
    right = (newest.folder / "state.json").read_bytes()
    os.link(newest.folder / "state.json", tmp_path / "link")

    made = make_wrong(places)

    assert made is not None
    done = newest.passport.progress.done
    assert (made[0].name, made[1]) == (newest.name, f"a wrong state.json at {done:g} steps")
    assert store.readable()[-1].name == newest.name
    assert verify(newest.folder, "demo").passport.progress == newest.passport.progress
    assert json.loads((newest.folder / "state.json").read_text())["step"] == json.loads(right)["step"]
    assert (newest.folder / "state.json").read_bytes() != right
    assert (tmp_path / "link").read_bytes() == right
