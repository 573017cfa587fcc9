"""Programs that keep the contract: what they had saved is taken over, and given back with a script that goes on."""

import json
import subprocess
from pathlib import Path

import pytest
from support.toyrun import toy, toy_job

from unbroken.engines.foreign import Foreign
from unbroken.engines.toy.engine import ToyEngine
from unbroken.errors import CheckpointError, ConfigError
from unbroken.runs.adopted import Adopted
from unbroken.runs.checkpoint import Checkpoint
from unbroken.runs.store import Store
from unbroken.segment.adopt import adopt
from unbroken.segment.export import export


def saved(base: Path, name: str) -> Path:
    """A folder as the toy saves it: a run's newest checkpoint, as the program wrote it."""
    toy(base / name, goal=20)
    newest = Store(toy_job(base / name).places.checkpoints).readable()[-1]
    folder = base / f"{name}-saved"
    folder.mkdir()
    for path in newest.folder.iterdir():
        if path.name != "manifest.json":
            path.rename(folder / path.name)
    return folder


def taken(base: Path, source: Path, done: float | None = None) -> Checkpoint:
    return adopt(toy_job(base, goal=40), ToyEngine(base), Foreign(source, done), print)


def trace_of(base: Path) -> bytes:
    return (toy_job(base).places.final / "trace.csv").read_bytes()


def test_what_the_program_had_saved_goes_on_as_a_run(tmp_path: Path) -> None:
    source = saved(tmp_path, "by-hand")
    toy(tmp_path / "whole", goal=40)

    passport = taken(tmp_path, source, done=20).passport
    toy(tmp_path, goal=40)

    not_checked = ("whether the program can go on from these files: only it knows", "how far they are: 20 was typed")
    assert passport.adopted == Adopted(str(source), (), not_checked, ())
    assert trace_of(tmp_path) == trace_of(tmp_path / "whole")
    assert json.loads((toy_job(tmp_path).places.final / "summary.json").read_text())["adopted"]["from"] == str(source)


def test_progress_json_says_how_far_it_is(tmp_path: Path) -> None:
    source = saved(tmp_path, "by-hand")
    (source / "progress.json").write_text('{"done": 20, "goal": 20, "unit": "steps"}')

    checkpoint = taken(tmp_path, source)

    assert (checkpoint.passport.progress.done, checkpoint.passport.progress.goal) == (20, 40)  # the goal was raised
    assert "progress.json" not in checkpoint.passport.files


def test_a_program_that_is_done_is_refused(tmp_path: Path) -> None:
    source = saved(tmp_path, "by-hand")
    (source / "progress.json").write_text('{"done": 40, "unit": "steps"}')

    with pytest.raises(CheckpointError, match="demo: it is at 40 steps, and the goal is 40: nothing is left to do"):
        taken(tmp_path, source)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (None, "progress.json: not there, so nobody knows how far it is; type for example --done 1200"),
        ("{", "progress.json: not JSON"),
        ('{"done": "much"}', "'done' is 'much', allowed: a number"),
    ],
)
def test_what_does_not_say_how_far_it_is_is_refused(text: str | None, line: str, tmp_path: Path) -> None:
    source = saved(tmp_path, "by-hand")
    if text is not None:
        (source / "progress.json").write_text(text)

    with pytest.raises((CheckpointError, ConfigError), match=line):
        taken(tmp_path, source)

    assert Store(toy_job(tmp_path).places.checkpoints).names() == []


def test_a_link_in_it_is_refused(tmp_path: Path) -> None:
    source = saved(tmp_path, "by-hand")
    (source / "more").symlink_to("/etc/hostname")

    with pytest.raises(CheckpointError, match="more: a link; a checkpoint holds plain files only"):
        taken(tmp_path, source, done=20)


def test_a_name_that_means_something_in_a_checkpoint_is_refused(tmp_path: Path) -> None:
    source = saved(tmp_path, "by-hand")
    (source / "parts").mkdir()

    with pytest.raises(CheckpointError, match="the name parts belongs to unbroken; rename yours"):
        taken(tmp_path, source, done=20)


def test_what_is_exported_goes_on_by_its_script(tmp_path: Path) -> None:
    toy(tmp_path, goal=20)
    toy(tmp_path / "whole", goal=40)

    export(toy_job(tmp_path, goal=40), ToyEngine(tmp_path), tmp_path / "out", "", print)
    (tmp_path / "out").rename(tmp_path / "moved")
    subprocess.run([tmp_path / "moved" / "resume.sh"], check=True)

    found = sorted((tmp_path / "moved" / "save").rglob("trace.csv"))
    assert found[-1].read_bytes() == trace_of(tmp_path / "whole")
