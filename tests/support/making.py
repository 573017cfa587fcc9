"""Checkpoints, passports and attempts made by hand, for tests of what reads them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from unbroken.store.checkpoint import Checkpoint, Passport
from unbroken.store.checkpoints import Store
from unbroken.store.history import Attempt, EndKind
from unbroken.store.progress import Progress
from unbroken.system.digests import preferred_algorithm

PASSPORT = Passport(
    run="demo",
    engine="toy",
    segment=1,
    sequence=1,
    token=1,
    parent=None,
    parent_digest=None,
    progress=Progress(10, 100, "steps"),
    is_finished=False,
    is_best=False,
    algorithm=preferred_algorithm(),
    files={},
    identity="1" * 64,
    identity_parts={"engine": "toy"},
    versions={"unbroken": "0"},
    host={"name": "here"},
    slurm_job=None,
    attempt_started_utc="2026-11-21T00:00:00Z",
    created_utc="2026-11-21T00:01:00Z",
    work_seconds=1.0,
    save_seconds=None,
)

ATTEMPT = Attempt(
    token=1,
    segment=1,
    driver_attempt=1,
    kind=EndKind.PAUSED,
    started_utc="2026-11-21T00:00:00Z",
    ended_utc="2026-11-21T00:01:00Z",
    from_checkpoint=None,
    to_checkpoint="000001_10-steps_20261121T000100Z_t1",
    progress_from=0.0,
    progress_to=10.0,
    unit="steps",
    work_seconds=60.0,
    saves=1,
    save_seconds=0.1,
    stop_seconds=0.2,
    unused_seconds=1.0,
    exit_code=85,
    host="here",
    pid=1,
    slurm_job="",
    message="paused",
)


def draft(store: Store, files: dict[str, str] | None = None) -> Path:
    """A folder as a program hands it over, beside the store."""
    folder = store.root.parent / "work" / "draft.ready"
    for name, text in (files or {"state": "one\n", "sub/more": "two\n"}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def publish(store: Store, sequence: int, files: dict[str, str] | None = None, **changes: object) -> Checkpoint:
    """A published checkpoint; its progress is ten times its number, its parent the newest one before."""
    before = store.readable()[-1:]
    found = {
        "sequence": sequence,
        "progress": Progress(10 * sequence, 100, "steps"),
        "parent": before[0].name if before else None,
        "parent_digest": before[0].passport.digest if before else None,
    }
    passport = replace(PASSPORT, **{**found, **changes})  # type: ignore[arg-type]
    return store.publish(draft(store, files), passport, lambda: None)
