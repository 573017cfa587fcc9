"""Runs that an earlier version left half done, as they lay on its disk, go on to the bytes that it would have come to.

Recorded before the project was renamed and its modules moved: the toy, a shell script, PyTorch, TensorFlow and GROMACS.
Each has come to an end of its first segment and computes in whole numbers, so that its bytes are the same on every
machine; GROMACS does not, and of it the times in the table of energies are compared.  DMTCP's images belong to the
machine that made them.  The shell script has tables in its checkpoints, which are not read any more: it is refused.

In `formats` lie runs of each format that was ever written, by tests/support/record_formats.py.
"""

import hashlib
import json
import re
import shutil
import subprocess
import tarfile
import venv
from pathlib import Path

import pytest
from support.record_formats import FORMATS, RECORDINGS
from support.toy_spec import segment_command
from support.toyrun import PYTHONPATH
from support.workdir import ROOT, WorkDir

from unbroken.job import spec
from unbroken.runs import checkpoint, claim, history, record

RECORDED = ROOT / "tests" / "recorded"
RUN = "count"


@pytest.fixture
def recorded(tmp_path: Path, request: pytest.FixtureRequest) -> WorkDir:
    with tarfile.open(RECORDED / f"{request.param}.tar.gz") as archive:
        archive.extractall(tmp_path / "work", filter="data")
    return WorkDir(tmp_path / "work", words=("--cores", "1"))


def digests(folder: Path, names: list[str]) -> dict[str, str]:
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}


@pytest.mark.parametrize(
    "recorded",
    [
        "toy",
        "torch",
        pytest.param("tensorflow", marks=pytest.mark.tensorflow),
    ],
    indirect=True,
)
def test_a_run_of_an_earlier_version_goes_on_to_the_same_bytes(
    recorded: WorkDir, request: pytest.FixtureRequest
) -> None:
    engine = request.node.callspec.params["recorded"]
    if engine == "torch":
        pytest.importorskip("torch", reason="missing: torch (pip install torch)")
    expected = json.loads((RECORDED / f"{engine}.json").read_text())
    (first,) = recorded.history(RUN)
    began = (recorded.places(RUN).checkpoints / "latest").resolve().name

    done = recorded.snakemake()

    assert done.code == 0, done.text
    assert f"resuming from results/{RUN}/checkpoints/{began} " in done.text
    assert recorded.history(RUN)[0] == first
    assert digests(recorded.places(RUN).final, list(expected)) == expected
    assert len(expected) > 0


@pytest.mark.parametrize("recorded", ["command"], indirect=True)
def test_a_run_with_tables_in_its_checkpoints_is_refused_before_anything_is_queued(recorded: WorkDir) -> None:
    before, lines = kept(recorded), recorded.places(RUN).history.read_bytes()

    done = recorded.snakemake()

    assert done.code == 1
    (line,) = [line for line in done.text.splitlines() if "manifest.json: " in line]
    assert "found format 1 with tables in the checkpoint (parts/pieces.json)" in line
    assert "install the version that wrote it, or move the run's folder away and start again" in line
    assert (kept(recorded), recorded.places(RUN).history.read_bytes()) == (before, lines)


@pytest.mark.needs("gromacs")
@pytest.mark.parametrize("recorded", ["gromacs"], indirect=True)
def test_a_simulation_of_an_earlier_version_goes_on(recorded: WorkDir) -> None:
    expected = json.loads((RECORDED / "gromacs.json").read_text())
    began = (recorded.places(RUN).checkpoints / "latest").resolve().name

    done = recorded.snakemake()

    assert done.code == 0, done.text
    assert f"resuming from results/{RUN}/checkpoints/{began} " in done.text
    rows = (recorded.places(RUN).final / "energy.tsv").read_text().splitlines()
    assert [row.split("\t")[0] for row in rows] == expected["times"]
    assert (recorded.places(RUN).final / "md.xtc").stat().st_size > 0


# --- every format that was ever written ------------------------------------------------------------------------------

PATHS = re.compile(rb'"/(?!mnt/)[^"]*"')


@pytest.fixture
def recording(tmp_path: Path, request: pytest.FixtureRequest) -> WorkDir:
    return unpacked(request.param, tmp_path / "work")


def unpacked(name: str, folder: Path) -> WorkDir:
    """A recording, with all that belongs to this machine and not into it."""
    with tarfile.open(FORMATS / f"{name}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    config = folder / "config" / "config.yaml"
    if "venv:" in config.read_text():
        venv.create(folder / "venv", symlinks=True)
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
    work = unpacked("0.1.0-toy", tmp_path / "work")
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


def test_every_format_has_its_recording(tmp_path: Path) -> None:
    """Whoever raises a number records a run first: `python tests/support/record_formats.py`."""
    found: dict[str, set[int]] = {name: set() for name in ("passport", "record", "history", "lease", "spec")}
    for name in RECORDINGS:
        work = unpacked(name, tmp_path / name)
        places, notes = work.places(RUN), work.root / spec.path_of(RUN)
        texts = {
            "passport": [path.read_text() for path in places.root.glob("*/0*/manifest.json")],
            "record": [path.read_text() for path in places.segments.glob("*.json")],
            "history": places.history.read_text().splitlines(),
            "lease": [path.read_text() for path in places.lease.glob("*.json")],
            "spec": [notes.read_text()] if notes.exists() else [],
        }
        keys = {"passport": "schema_version", "spec": "version"}
        for kind, read in texts.items():
            found[kind] |= {json.loads(text).get(keys.get(kind, "format"), 1) for text in read}
    written = {
        "passport": checkpoint.FORMAT.newest,
        "record": record.FORMAT.newest,
        "history": history.FORMAT.newest,
        "lease": claim.FORMAT.newest,
        "spec": spec.FORMAT.newest,
    }
    assert found == {kind: set(range(1, newest + 1)) for kind, newest in written.items()}


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_recording_is_small_and_says_of_no_machine(name: str, tmp_path: Path) -> None:
    work = unpacked(name, tmp_path / "work")
    shutil.rmtree(work.root / "venv", ignore_errors=True)
    told = {str(path): PATHS.findall(path.read_bytes()) for path in work.root.rglob("*") if path.is_file()}

    assert (FORMATS / f"{name}.tar.gz").stat().st_size < 10_000
    assert not {path: found for path, found in told.items() if found}
    hosts = [checkpoint.host["name"] for checkpoint in work.passports(RUN)] + [work.claim(RUN)["host"]]
    assert set(hosts) == {"recorder"}
