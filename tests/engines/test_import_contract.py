"""Programs that keep the contract: what they had saved is imported, and exported with a script that resumes it."""

import json
import subprocess
import zipfile
from pathlib import Path

import pytest
from support.toyrun import flip_byte, toy, toy_job

from unbroken.engines.imports import ImportSource
from unbroken.engines.toy.engine import ToyEngine
from unbroken.errors import CheckpointError, ConfigError
from unbroken.job.import_export import export_run, import_run
from unbroken.store.attempts import unfinished_imports
from unbroken.store.checkpoint import Checkpoint, Imported
from unbroken.store.checkpoints import Store

pytestmark = pytest.mark.process


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
    return import_run(toy_job(base, goal=40), ToyEngine(base), ImportSource(source, done))


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}


def trace_of(base: Path) -> bytes:
    return (toy_job(base).places.final / "trace.csv").read_bytes()


def test_what_the_program_had_saved_goes_on_as_a_run(tmp_path: Path) -> None:
    source = saved(tmp_path, "by-hand")
    before = contents(source)
    toy(tmp_path / "whole", goal=40)

    passport = taken(tmp_path, source, done=20).passport
    toy(tmp_path, goal=40)

    loads = "whether the program loads all of its state from these files: only it knows"
    assert passport.imported == Imported(str(source), (), ("how far it is: 20 was typed", loads), ".", 0, 20)
    assert trace_of(tmp_path) == trace_of(tmp_path / "whole")
    assert json.loads((toy_job(tmp_path).places.final / "summary.json").read_text())["imported"]["source"] == str(
        source
    )
    assert contents(source) == before


def test_progress_json_says_how_far_it_is(tmp_path: Path) -> None:
    source = saved(tmp_path, "by-hand")
    (source / "progress.json").write_text('{"done": 20, "goal": 20, "unit": "steps"}')

    checkpoint = taken(tmp_path, source)

    assert (checkpoint.passport.progress.done, checkpoint.passport.progress.goal) == (20, 40)  # the goal was raised
    assert not {"progress.json"} & set(checkpoint.passport.files)


@pytest.mark.parametrize(
    ("spoil", "done", "line"),
    [
        ("nothing", None, "by-hand-saved: does not say how many steps are done; type --done N"),
        ("nothing", 1.5, r"--done: found 1\.5, allowed: a whole number"),
        ("nothing", 40, "demo: it is at 40 steps, and the goal is 40: nothing is left to do"),
        ('{"done": 40, "unit": "steps"}', None, "demo: it is at 40 steps, and the goal is 40: nothing is left to do"),
        ('{"done": 20}', 20, "--done: the files themselves say how far they are; leave it out"),
        ("{", None, "progress.json: not JSON"),
        ('{"done": "much"}', None, "'done' is 'much', allowed: a number"),
        ("link", 20, "more: not a plain file; a checkpoint holds no links"),
        ("parts", 20, "the name parts belongs to unbroken; rename yours"),
        ("zip", 20, r"more: torn: the end of the file is missing"),
        ("hdf5", 20, r"more: torn: the end of the file is missing"),
        ("distcp", 20, r"torn: has no \.metadata, which torch\.distributed\.checkpoint writes last"),
    ],
)
def test_what_does_not_fit_is_refused_and_leaves_nothing(
    spoil: str, done: float | None, line: str, tmp_path: Path
) -> None:
    source = saved(tmp_path, "by-hand")
    if spoil == "link":
        (source / "more").symlink_to("/etc/hostname")
    elif spoil == "parts":
        (source / "parts").mkdir()
        (source / "parts" / "mine").touch()
    elif spoil == "zip":
        with zipfile.ZipFile(source / "more", "w") as file:
            file.writestr("data.pkl", b"x" * 1000)
        (source / "more").write_bytes((source / "more").read_bytes()[:-30])
    elif spoil == "hdf5":
        head = b"\x89HDF\r\n\x1a\n" + bytes(32) + (2048).to_bytes(8, "little")
        (source / "more").write_bytes(head.ljust(2047, b"x"))
    elif spoil == "distcp":
        (source / "__0_0.distcp").write_bytes(b"a part")
    elif spoil != "nothing":
        (source / "progress.json").write_text(spoil)

    with pytest.raises((CheckpointError, ConfigError), match=line):
        taken(tmp_path, source, done)

    places = toy_job(tmp_path).places
    assert Store(places.checkpoints).names() == []
    assert list(places.root.glob(".*")) == []
    assert not unfinished_imports(places.work)


def test_a_checkpoint_of_unbroken_is_imported_by_its_manifest(tmp_path: Path) -> None:
    toy(tmp_path / "other", goal=20)
    root = toy_job(tmp_path / "other").places.root
    newest = Store(root / "checkpoints").readable()[-1].folder

    passport = taken(tmp_path, root).passport

    assert passport.progress.done == 20
    assert passport.imported is not None
    assert passport.imported.checked == (f"checkpoint {newest.name} of unbroken: every byte, by its manifest",)
    flip_byte(newest / "trace.csv")
    with pytest.raises(CheckpointError, match="the content changed"):
        taken(tmp_path / "next", newest)


def test_what_is_exported_goes_on_by_its_script(tmp_path: Path) -> None:
    toy(tmp_path, goal=20)
    toy(tmp_path / "whole", goal=40)

    export_run(toy_job(tmp_path, goal=40), ToyEngine(tmp_path), tmp_path / "out", "")
    (tmp_path / "out").rename(tmp_path / "moved")
    subprocess.run([tmp_path / "moved" / "resume.sh"], check=True)

    found = sorted((tmp_path / "moved" / "save").rglob("trace.csv"))
    assert found[-1].read_bytes() == trace_of(tmp_path / "whole")
