"""`unbroken status` beside files that somebody has spoilt: it says what it can, and never ends in a traceback."""

from pathlib import Path

import pytest
from support.toyrun import checkpoints, toy, toy_job
from typer.testing import CliRunner

from unbroken.cli.main import app
from unbroken.store import lease

pytestmark = pytest.mark.process

SPOILT = {
    "versions is a number": b'{"done": 1, "goal": 5, "versions": 5}',
    "NaN": b'{"done": 1, "goal": 5, "save_seconds": NaN}',
    "400 digits": b'{"done": ' + b"9" * 400 + b"}",
    "nested": b"[" * 100_000,
    "a lone surrogate": b'{"done": 1, "unit": "\\ud800"}',
    "no text": b"\xff\xfe\x00",
    "empty": b"",
}
# Of a run that has been at work, and of the one at work now.
FILES = ("progress", "passport", "history", "claim", "record")


def put(path: Path, spoilt: bytes | None) -> None:
    if spoilt is None:
        path.unlink(missing_ok=True)
        path.mkdir()
    else:
        path.write_bytes(spoilt)


@pytest.mark.parametrize("spoilt", [*SPOILT, "a folder"])
@pytest.mark.parametrize("file", FILES)
def test_status_tells_what_it_can(file: str, spoilt: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toy(tmp_path, segment_minutes=0.01, goal=10**6)
    job = toy_job(tmp_path, 2, goal=10**6)
    monkeypatch.setenv("COLUMNS", "200")
    with lease.take(job.places.lease, 2, 0.0) as held:
        attempt_folder = job.places.work / f"{held.claim.token:06d}"
        attempt_folder.mkdir()
        path = {
            "progress": attempt_folder / "progress.json",
            "passport": checkpoints(job)[-1].folder / "manifest.json",
            "history": job.places.history,
            "claim": job.places.lease / f"{held.claim.token:06d}.json",
            "record": job.places.record(1),
        }[file]
        put(path, SPOILT.get(spoilt))

        done = CliRunner().invoke(app, ["status", "--directory", str(tmp_path)])

        if path.is_dir():
            path.rmdir()
            path.touch()
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert "demo" in done.output
    assert "Traceback" not in done.output
