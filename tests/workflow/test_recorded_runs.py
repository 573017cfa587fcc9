"""Runs that lie on a disk half done go on to the bytes they would have come to; those of another format are refused.

Made by tests/support/record_formats.py.  `earlier` is of an early commit, with the first format of each file.
"""

import hashlib
import json
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from support.record_formats import FORMATS, RECORDINGS
from support.toy_spec import segment_command
from support.toyrun import PYTHONPATH
from support.workdir import ROOT, WorkDir

from unbroken.job import spec
from unbroken.store import checkpoint, claim, record
from unbroken.store.history import History

RUN = "count"


def digests(folder: Path, names: list[str]) -> dict[str, str]:
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}


PATHS = re.compile(rb'"/(?!mnt/)[^"]*"')


@pytest.fixture
def recording(tmp_path: Path, request: pytest.FixtureRequest) -> WorkDir:
    return unpacked(request.param, tmp_path / "work")


def unpacked(name: str, folder: Path) -> WorkDir:
    """A recording, with all that belongs to this machine and not into it."""
    with tarfile.open(FORMATS / f"{name}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    config = folder / "config" / "config.yaml"
    config.write_text(re.sub("segment_minutes: .*", "segment_minutes: 5", config.read_text()))  # the rest in one go
    return WorkDir(folder, words=("--cores", "1"))


def kept(work: WorkDir) -> dict[str, bytes]:
    """What nobody may ever write again, by its path."""
    places = work.places(RUN)
    found = [*places.segments.glob("*.json"), *places.checkpoints.glob("0*/**/*"), *places.archive.glob("0*/**/*")]
    return {str(path.relative_to(places.root)): path.read_bytes() for path in found if path.is_file()}


@pytest.mark.parametrize("recording", RECORDINGS, indirect=True)
def test_a_run_of_every_format_is_verified_reported_and_resumed_to_its_goal(
    recording: WorkDir, request: pytest.FixtureRequest
) -> None:
    expected = json.loads((FORMATS / f"{request.node.callspec.params['recording']}.json").read_text())
    before, lines = kept(recording), recording.places(RUN).history.read_bytes()
    newest = recording.passports(RUN)[-1]

    (row,) = json.loads(recording.unbroken("status", "--json").text)
    verified = recording.unbroken("verify")
    reported = recording.unbroken("report")

    count = len([name for name in before if name.endswith("manifest.json")])
    assert (row["state"], row["progress"]["done"]) == ("paused", newest.progress.done)
    said, *more = verified.text.splitlines()
    assert (verified.code, said) == (0, f"{count} of {count} checkpoints are whole")
    assert all(
        re.fullmatch(r"(\d+) of \1 output files are as their newest checkpoint lists them", each) for each in more
    )
    assert reported.code == 0, reported.text
    page = (recording.root / "results" / "report.html").read_text()
    assert f'"attempts_made":{len(lines.splitlines())},' in page
    assert (kept(recording), recording.places(RUN).history.read_bytes()) == (before, lines)

    done = recording.snakemake()

    assert done.code == 0, done.text
    began = f"resuming from results/{RUN}/checkpoints/{newest.sequence:06d}_"
    assert began in done.text and "removed" not in done.text
    after = kept(recording)
    pruned = before.keys() - after.keys()
    assert all(name.startswith("checkpoints/") for name in pruned)
    assert {name: after[name] for name in before.keys() - pruned} == {
        name: before[name] for name in before.keys() - pruned
    }
    assert recording.places(RUN).history.read_bytes().startswith(lines)
    assert digests(recording.places(RUN).final, list(expected)) == expected and expected
    assert recording.unbroken("verify").code == 0
    (row,) = json.loads(recording.unbroken("status", "--json").text)
    assert row["state"] == "finished"


def test_the_spec_of_tasks_that_wait_in_the_queue_is_still_good(tmp_path: Path) -> None:
    work = unpacked("toy", tmp_path / "work")
    shutil.copy(ROOT / "scripts" / "segment.py", work.root / "toy_segment.py")
    environment = {**work.environment(), "PYTHONPATH": PYTHONPATH}

    done = subprocess.run(
        segment_command(4, run=RUN),
        cwd=work.root,
        env=environment,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stderr
    assert [record.segment for record in work.records(RUN)] == [1, 2, 3, 4]
    assert work.saved(RUN) == 4


def test_a_run_of_another_format_is_refused_before_anything_is_queued(tmp_path: Path) -> None:
    work = unpacked("earlier", tmp_path / "work")
    before, lines = kept(work), work.places(RUN).history.read_bytes()

    done = work.snakemake()

    assert done.code == 1
    (line,) = done.lines("unbroken: ")
    assert f"{RUN}: " in line and "found format 1, unbroken " in line and "install the version that wrote it" in line
    assert (kept(work), work.places(RUN).history.read_bytes()) == (before, lines)


def test_the_recordings_are_of_the_formats_of_today(tmp_path: Path) -> None:
    """Whoever raises a number records them again: `python tests/support/record_formats.py`."""
    for name in RECORDINGS:
        work = unpacked(name, tmp_path / name)
        places, notes = work.places(RUN), work.root / spec.path_of(RUN)
        found = [(checkpoint.FORMAT, path) for path in places.root.glob("*/0*/manifest.json")]
        found += [(record.FORMAT, path) for path in places.segments.glob("*.json")]
        found += [(claim.FORMAT, path) for path in places.lease.glob("*.json")]
        found += [(spec.FORMAT, notes)] if notes.exists() else []

        assert all(number.read(path) for number, path in found)
        assert len(History(places.history).attempts()) == len(places.history.read_text().splitlines())


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_recording_is_small_and_says_of_no_machine(name: str, tmp_path: Path) -> None:
    work = unpacked(name, tmp_path / "work")
    told = {str(path): PATHS.findall(path.read_bytes()) for path in work.root.rglob("*") if path.is_file()}

    assert (FORMATS / f"{name}.tar.gz").stat().st_size < 10_000
    assert not {path: found for path, found in told.items() if found}
    hosts = [checkpoint.host["name"] for checkpoint in work.passports(RUN)] + [work.claim(RUN)["host"]]
    assert set(hosts) == {"recorder"}
