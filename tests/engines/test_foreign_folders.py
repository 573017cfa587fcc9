"""Engines that work in a folder of their own: what a program puts in its place is neither taken over nor removed."""

import os
from pathlib import Path

import pytest
from support import gmx_systems
from support.command_jobs import command_job, command_segment, walker_settings
from support.gmx_jobs import gmx_job, gmx_segment
from support.snapshots import snapshot
from support.toyrun import history

from unbroken.engines.dmtcp.workspace import take_results
from unbroken.errors import ForeignFolderError
from unbroken.store.history import EndKind


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    """Somebody's work on another disk, restart files among it."""
    folder = tmp_path / "scratch"
    (folder / "sub").mkdir(parents=True)
    for name in ("thesis.dat", "walk.5.json", "walk.7.json", "walk.9.json", "md.cpt", "sub/more"):
        (folder / name).write_text("[1]")
    (folder / "link").symlink_to("thesis.dat")
    return folder


@pytest.mark.process
@pytest.mark.parametrize("end", ["exit 3", "exit 0", "exit 1", "sleep 1000"])
def test_a_program_of_the_command_engine_that_puts_a_link_in_the_place_of_its_folder(
    tmp_path: Path, scratch: Path, end: str
) -> None:
    before, base = snapshot(scratch), tmp_path / "base"
    base.mkdir()
    settings = walker_settings()
    replaces = f'here="$PWD"; cd /; mv "$here" "$here.old"; ln -s {scratch} "$here"; {end}'
    keys = {"save_minutes": 0.0001, "segment_minutes": 0.2}

    with pytest.raises(ForeignFolderError, match=r"/program: (a link to .*|gone); "):
        command_segment(base, {**settings, "start": ["sh", "-c", replaces]}, **keys)
    command_segment(base, settings, attempt=2)

    assert snapshot(scratch) == before
    assert [attempt.kind for attempt in history(command_job(base, settings))] == [EndKind.FAILED, EndKind.FINISHED]


@pytest.mark.process
@pytest.mark.needs("gromacs")
def test_an_mdrun_in_whose_folders_place_there_is_a_link(tmp_path: Path, scratch: Path) -> None:
    program = tmp_path / "gmx_that_moves"
    program.write_text(
        "#!/bin/sh\n"
        'case "$*" in *mdrun*) gmx "$@"; code=$?; here="$PWD"; cd /\n'
        f'mv "$here" {scratch}/moved; ln -s {scratch}/moved "$here"; exit $code;; esac\n'
        'exec gmx "$@"\n'
    )
    program.chmod(0o755)
    tpr = str(gmx_systems.water_tpr("short", nsteps=200))

    with pytest.raises(ForeignFolderError, match=r"/mdrun: a link to "):
        gmx_segment(tmp_path, tpr=tpr, gmx=str(program))
    moved = snapshot(scratch)
    gmx_segment(tmp_path, attempt=2, tpr=tpr)

    assert snapshot(scratch) == moved
    assert {"moved/md.cpt", "moved/md.part0001.log", "thesis.dat"} <= set(moved)
    assert [attempt.kind for attempt in history(gmx_job(tmp_path, tpr=tpr))] == [EndKind.FAILED, EndKind.FINISHED]


def test_the_results_of_a_program_under_dmtcp_are_not_taken_from_what_is_linked_there(
    tmp_path: Path, scratch: Path
) -> None:
    before, live = snapshot(scratch), tmp_path / "live"
    os.symlink(scratch, live)

    with pytest.raises(ForeignFolderError, match="/live: a link to "):
        take_results(live, tmp_path / "final")

    assert snapshot(scratch) == before
