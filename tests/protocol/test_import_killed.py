"""The promise: an import that is killed at any step leaves no torn checkpoint, and no run that starts from zero."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from engines.test_import_command import finished, taken, walked
from protocol.test_copies_killed import everything_visible_is_whole, in_parts, killed_everywhere
from support.command_jobs import command_job, command_segment, walker_settings
from support.toyrun import hidden

from unbroken.engines.command.engine import CommandEngine
from unbroken.errors import ConfigError, FencedError, StorageError
from unbroken.store.attempts import unfinished_imports
from unbroken.store.checkpoints import Store
from unbroken.store.history import EndKind

pytestmark = pytest.mark.process

SETTINGS = walker_settings(seed=3)


def imported(base: Path) -> None:
    taken(command_job(base, SETTINGS), base / "half")


@in_parts
def test_an_import_that_is_killed_at_any_step_is_repeated_or_was_done(part: int, tmp_path: Path) -> None:
    template = tmp_path / "template"
    template.mkdir()
    walked(template / "half", "--goal", 100, "--seed", 3)
    (template / "half" / "notes").write_text("of the program\n")
    walked(tmp_path / "whole", "--goal", 200, "--seed", 3)
    was_there = set()

    for where, base in killed_everywhere(tmp_path, template, "results", imported, part):
        store = Store(command_job(base, SETTINGS).places.checkpoints)
        everything_visible_is_whole(store)
        for name in hidden(store.root.parent):  # drafts of files go once they are too old to be somebody's work
            os.utime(store.root.parent / name, (1, 1))
        was_there.add(bool(store.names()))
        if store.names():
            with pytest.raises(ConfigError, match=r"has 000001_90-steps_.* already"):
                imported(base)
        else:
            _is_refused_or_new(base)
            imported(base)
        assert len(store.names()) == 1, where
        assert finished(base, SETTINGS) == (tmp_path / "whole" / "trace.csv").read_bytes(), where
        assert (command_job(base, SETTINGS).places.final / "notes").read_text() == "of the program\n", where
        assert hidden(store.root.parent) == [], where
    assert was_there == {True, False}


def _is_refused_or_new(base: Path) -> None:
    """A segment does not begin at the start where an import was begun."""
    beside = base.with_name(f"{base.name}-beside")
    shutil.copytree(base, beside, symlinks=True)
    if unfinished_imports(command_job(beside, SETTINGS).places.work):
        with pytest.raises(ConfigError, match=r"import of .* was interrupted.* unbroken import demo --from"):
            command_segment(beside, SETTINGS)
    else:  # killed before it had done anything
        assert command_segment(beside, SETTINGS).kind is EndKind.FINISHED
    shutil.rmtree(beside)


def test_a_disk_that_is_too_small_for_it_leaves_no_checkpoint_and_says_what_is_missing(
    small_disk: Callable[[str], Path], tmp_path: Path
) -> None:
    base = small_disk("size=1m")
    half = walked(tmp_path / "half", "--goal", 100, "--seed", 3)
    newest = half / "walk.000090.json"
    newest.write_text(json.dumps({**json.loads(newest.read_text()), "filling": "x" * 2_000_000}))

    with pytest.raises(StorageError, match=r"\.import-\S+: No space left on device; .* missing"):
        imported(base)

    places = command_job(base, SETTINGS).places
    assert (Store(places.checkpoints).names(), hidden(places.root), unfinished_imports(places.work)) == ([], [], {})


def test_an_import_that_was_taken_for_dead_publishes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (walked(tmp_path / "half", "--goal", 100, "--seed", 3) / "notes").touch()
    job = command_job(tmp_path, SETTINGS)
    fill = CommandEngine.import_files

    def slow(*words: Any) -> Any:
        (job.places.lease / "000002.json").write_text((job.places.lease / "000001.json").read_text())  # a successor
        return fill(*words)

    monkeypatch.setattr(CommandEngine, "import_files", slow)
    with pytest.raises(FencedError, match="was taken over by claim 2; nothing was written"):
        imported(tmp_path)

    assert Store(job.places.checkpoints).names() == []
    assert not job.places.output.exists()
    assert hidden(job.places.root) == []
