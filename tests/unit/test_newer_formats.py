"""Beside a file that a newer unbroken wrote nothing is done: one line says so, and no byte of the run changes."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from support.copying import GOAL, STEP, copied_run, job, step
from support.newer import NEWER, newer_claim, newer_passport, newer_record, newer_spec
from support.snapshots import Snapshot, snapshot
from support.toy_spec import segment_command, toy_spec
from support.toyrun import PATIENCE_SECONDS, PYTHONPATH, ProgramEngine

from snakemake_executor_plugin_unbroken.segments import Segment
from unbroken.cli import main as cli
from unbroken.engines.imports import ImportSource
from unbroken.errors import FormatError
from unbroken.job.after_work import _is_over as is_over_for_another
from unbroken.job.import_export import export_run, import_run
from unbroken.job.settled import is_done
from unbroken.job.spec import JobSpec, path_of, read
from unbroken.report.status import RunState, status_of
from unbroken.store import lease
from unbroken.store.checkpoints import Store
from unbroken.store.history import History
from unbroken.store.layout import RunFolder
from unbroken.store.progress import Handover, Progress
from unbroken.store.record import read_record
from unbroken.store.select import select
from unbroken.system import fs
from unbroken.training.core.run_directory import Home
from unbroken.training.core.save_policy import Saves

pytestmark = pytest.mark.process

DONE = 4


@pytest.fixture(scope="module")
def worked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in mid-life that has pruned some of its checkpoints, and copied them."""
    folder = tmp_path_factory.mktemp("worked")
    (folder / "base").mkdir()
    (folder / "backup").mkdir()
    for number in range(1, DONE + 1):
        step(folder / "base", folder / "backup", number, keep=2)
    return folder


@pytest.fixture
def base(worked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(worked, tmp_path / "here", symlinks=True)
    monkeypatch.chdir(tmp_path / "here" / "base")
    return tmp_path / "here" / "base"


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, list[str]]]:
    """The exit code of a command of `unbroken`, and its lines on both screens."""

    def call(*words: str) -> tuple[int, list[str]]:
        monkeypatch.setattr(sys, "argv", ["unbroken", *words])
        monkeypatch.setenv("COLUMNS", "2000")
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            cli.main()
        said = capsys.readouterr()
        return int(left.value.code or 0), [*said.out.splitlines(), *said.err.splitlines()]

    return call


def is_refusal(text: str, path: Path) -> bool:
    """True if it names the file, what was found, that nothing was done, and what to do."""
    return path.name in text and "found format " in text and "nothing was changed; install the version" in text


def but_for_logs(found: Snapshot) -> Snapshot:
    """A segment says in its log why it does nothing."""
    return {name: state for name, state in found.items() if not name.startswith("base/logs/")}


def segment_of(base: Path) -> None:
    step(base, base.parent / "backup", DONE + 1)


def importing(base: Path) -> None:
    (base.parent / "elsewhere").mkdir()
    import_run(job(base), ProgramEngine(STEP), ImportSource(base.parent / "elsewhere"))


ACTIONS: dict[str, Callable[[Path], object]] = {
    "segment": segment_of,
    "import": importing,
    "export": lambda base: export_run(job(base), ProgramEngine(STEP), base / "out", ""),
    "training": lambda base: Home(base / "results" / "demo", "training", Saves(keep=1), has_history=True),
}


@pytest.mark.parametrize("kind", NEWER)
@pytest.mark.parametrize("action", ACTIONS)
def test_nothing_is_done_to_a_run_of_a_newer_unbroken(base: Path, action: str, kind: str) -> None:
    newer = NEWER[kind](job(base).places)
    before = snapshot(base.parent)

    with pytest.raises(FormatError) as told:
        ACTIONS[action](base)

    assert is_refusal(str(told.value), newer) and "\n" not in str(told.value)
    assert but_for_logs(snapshot(base.parent)) == but_for_logs(before)


@pytest.mark.parametrize("kind", ["passport"])
def test_no_record_is_made_from_a_store_of_a_newer_unbroken(base: Path, kind: str) -> None:
    NEWER[kind](job(base).places)
    job(base).places.record(DONE).unlink()
    before = snapshot(base.parent)

    with pytest.raises(FormatError):
        is_done(copied_run(base.parent / "backup"), DONE)

    assert snapshot(base.parent) == before


@pytest.mark.parametrize("kind", NEWER)
@pytest.mark.parametrize(
    "words", [("back", "demo"), ("restart", "demo"), ("accept", "demo")], ids=lambda words: words[0]
)
def test_a_command_that_would_act_is_one_line(
    base: Path, typed: Callable[..., tuple[int, list[str]]], words: tuple[str, ...], kind: str
) -> None:
    newer = NEWER[kind](job(base).places)
    before = snapshot(base.parent)

    code, lines = typed(*words)

    assert code == 1 and len(lines) == 1 and is_refusal(lines[0], newer)
    assert snapshot(base.parent) == before


@pytest.mark.parametrize("kind", ["passport", "archived passport"])
def test_verify_says_that_it_does_not_know(base: Path, typed: Callable[..., tuple[int, list[str]]], kind: str) -> None:
    newer = NEWER[kind](job(base).places)
    before = snapshot(base.parent)

    code, lines = typed("verify")

    assert code == 1
    told = [line for line in lines if line.startswith("unknown ")]
    assert told and all(is_refusal(line, newer) for line in told)
    assert not [line for line in lines if line.startswith("bad ")]
    assert snapshot(base.parent) == before


@pytest.mark.parametrize("words", [("account",), ("account", "--json")], ids=lambda words: words[-1])
def test_the_account_shows_the_line_and_the_other_runs(
    base: Path, typed: Callable[..., tuple[int, list[str]]], words: tuple[str, ...]
) -> None:
    shutil.copytree(base / "results" / "demo", base / "results" / "other")
    newer = NEWER["history"](job(base).places)
    before = snapshot(base.parent)

    code, lines = typed(*words)

    assert code == 1
    assert [is_refusal(line, newer) for line in lines].count(True) == 1
    shown = "\n".join(line for line in lines if not is_refusal(line, newer))
    assert "other" in shown and "demo" not in shown
    assert snapshot(base.parent) == before


def test_a_history_that_cannot_be_read_hides_the_account_of_no_other_run(
    base: Path, typed: Callable[..., tuple[int, list[str]]]
) -> None:
    shutil.copytree(base / "results" / "demo", base / "results" / "other")
    job(base).places.history.unlink()
    job(base).places.history.mkdir()

    code, lines = typed("account")

    assert code == 1
    assert [line for line in lines if "demo" in line] == [
        "unbroken: results/demo/history.jsonl: Is a directory; earlier checkpoints are untouched"
    ]
    assert any("other" in line for line in lines), lines


@pytest.mark.parametrize("kind", NEWER)
def test_the_status_shows_the_line_and_the_other_runs(base: Path, kind: str) -> None:
    newer = NEWER[kind](job(base).places)
    before = snapshot(base.parent)

    row = status_of("demo", base, copied_run(base.parent / "backup"))

    assert row.state is RunState.UNREADABLE and is_refusal(row.advice, newer)
    assert status_of("other", base, None).state is RunState.NOT_STARTED
    assert snapshot(base.parent) == before


@pytest.mark.parametrize("kind", [kind for kind in NEWER if kind != "claim"])
def test_no_run_is_rebuilt_from_copies_of_a_newer_unbroken(
    base: Path, typed: Callable[..., tuple[int, list[str]]], kind: str
) -> None:
    shutil.rmtree(base / "results" / "demo")
    newer = NEWER[kind](RunFolder("demo", store=base.parent / "backup" / "demo"))
    before = snapshot(base.parent)

    code, lines = typed("restore", "demo", "--from", str(base.parent / "backup"))

    assert code == 1 and len(lines) == 1 and is_refusal(lines[0], newer)
    assert snapshot(base.parent) == before


@pytest.mark.parametrize("kind", [kind for kind in NEWER if kind != "claim"])
def test_copies_of_a_newer_unbroken_stay_as_they_are_while_the_run_goes_on(base: Path, kind: str) -> None:
    backup = base.parent / "backup"
    newer = NEWER[kind](RunFolder("demo", store=backup / "demo"))
    before = snapshot(backup)

    step(base, backup, DONE + 1, keep=2)

    assert snapshot(backup) == before
    log = job(base, DONE + 1).places.log(DONE + 1).read_text()
    assert [is_refusal(line, newer) for line in log.splitlines() if ": copies: " in line] == [True]


@pytest.mark.parametrize("kind", ["passport"])
def test_nothing_is_pruned_or_chosen_beside_it(base: Path, kind: str) -> None:
    store = Store(job(base).places.checkpoints)
    NEWER[kind](job(base).places)
    before = snapshot(base.parent)

    with pytest.raises(FormatError):
        store.prune(1, 0)
    with pytest.raises(FormatError):
        select(store, "demo", lambda identity: True)

    assert snapshot(base.parent) == before


@pytest.mark.parametrize("kind", ["passport", "record"])
def test_what_a_newer_holder_leaves_while_a_segment_waits_for_it_counts_too(
    base: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Not even what it has left half done is tidied up."""
    places = job(base).places
    really = lease.take

    def taken_late(*words: object, **more: object) -> lease.Lease:
        NEWER[kind](places)
        (places.checkpoints / fs.unique_name("draft")).write_text("half of it")
        before.update(snapshot(base))
        return really(*words, **more)  # type: ignore[arg-type]

    before: Snapshot = {}
    monkeypatch.setattr(lease, "take", taken_late)
    with pytest.raises(FormatError):
        segment_of(base)

    after = snapshot(base)
    touched = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    assert not [name for name in touched if not name.startswith(("results/demo/lease/", "logs/"))]


# --- jobs by themselves ----------------------------------------------------------------------------------------------


def python(base: Path, *words: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return run(base, [sys.executable, "-m", *words], **environment)


def run(base: Path, command: Sequence[str], **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command,
        cwd=base,
        env=os.environ | {"PYTHONPATH": PYTHONPATH, **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )


def spec_of(base: Path) -> JobSpec:
    return toy_spec(copied_run(base.parent / "backup"), last_segment=9)


def newer_file(base: Path, kind: str) -> Path:
    """One of the run, next to its spec.json, or that itself."""
    if kind == "spec":
        return newer_spec(spec_of(base), base)
    spec_of(base).write(base)
    return NEWER[kind](job(base).places)


@pytest.mark.parametrize("kind", ["record", "passport", "spec"])
def test_a_segment_without_snakemake_removes_no_record(base: Path, kind: str) -> None:
    newer = newer_file(base, kind)
    before = snapshot(base.parent)

    done = run(base, segment_command(DONE))

    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1 and is_refusal(done.stderr, newer)
    assert snapshot(base.parent) == before


@pytest.mark.parametrize("kind", ["record", "history", "passport", "spec"])
def test_a_job_of_a_chain_leaves_the_run_and_the_queue_alone(base: Path, kind: str) -> None:
    newer = newer_file(base, kind)
    bin_folder = base.parent / "bin"
    bin_folder.mkdir()
    for name in ("squeue", "scancel", "sbatch", "scontrol"):
        (bin_folder / name).write_text(f"#!/bin/sh\ntouch {base}/asked-{name}\n")
        (bin_folder / name).chmod(0o755)
    before = snapshot(base.parent)

    done = python(base, "unbroken.job", str(path_of("demo")), PATH=f"{bin_folder}:/usr/bin:/bin", SLURM_JOB_ID="17")

    assert done.returncode == 78
    assert [is_refusal(line, newer) for line in done.stderr.splitlines()] == [True]
    assert snapshot(base.parent) == before


def test_a_spec_of_a_newer_unbroken_is_not_written_over(base: Path) -> None:
    path = newer_spec(spec_of(base), base)
    before = path.read_bytes()

    with pytest.raises(FormatError):
        spec_of(base).write(base)

    assert path.read_bytes() == before


@pytest.mark.parametrize("kind", ["record", "spec"])
def test_a_run_that_a_newer_unbroken_carries_on_is_not_over(base: Path, kind: str) -> None:
    """The last job of another run asks, whose end it must not spoil."""
    newer_file(base, kind)

    with pytest.raises(FormatError):
        read(path_of("demo")).is_over()
    assert not is_over_for_another("demo")


def test_a_driver_believes_a_record_that_a_newer_job_left(base: Path) -> None:
    segment = Segment(copied_run(base.parent / "backup"), DONE, "toy_segment", ("demo", f"{DONE:03d}"))
    newer_record(segment.folder)
    before = snapshot(base.parent)

    assert segment.has_record()
    assert segment.is_done()

    assert snapshot(base.parent) == before


def test_a_driver_removes_no_record_of_a_newer_job_for_which_no_work_stands(base: Path) -> None:
    record = job(base).places.record(DONE + 1)
    record.write_text(newer_record(job(base).places).read_text())
    segment = Segment(copied_run(base.parent / "backup"), DONE + 1, "toy_segment", ("demo", f"{DONE + 1:03d}"))
    before = snapshot(base.parent)

    with pytest.raises(FormatError):
        segment.is_done()

    assert snapshot(base.parent) == before


# --- what stays readable ---------------------------------------------------------------------------------------------


def test_a_key_of_a_later_version_is_passed_over_and_an_earlier_number_is_refused(base: Path) -> None:
    places = job(base).places
    record, line = places.record(DONE), places.history.read_text().splitlines()[-1]
    claim = sorted(places.lease.glob("*.json"))[-1]
    assert "format" not in json.loads(claim.read_text())
    was, held = read_record(record), lease.newest_claim(places.lease)

    def as_of(number: int, text: str) -> str:
        return json.dumps(json.loads(text) | {"format": number, "a_key_of_tomorrow": [1]}) + "\n"

    record.write_text(as_of(2, record.read_text()))
    claim.write_text(as_of(1, claim.read_text()))
    places.history.write_text(as_of(2, line))

    assert read_record(record) == was and was is not None
    assert lease.newest_claim(places.lease) == held and held is not None
    assert [attempt.segment for attempt in History(places.history).attempts()] == [DONE]
    segment_of(base)
    assert Store(places.checkpoints).readable()[-1].passport.progress == Progress(DONE + 1, GOAL, "steps")
    record.write_text(as_of(1, record.read_text()))
    with pytest.raises(FormatError, match=r"found format 1, unbroken \S+ reads 2"):
        read_record(record)


def test_the_claim_of_a_newer_unbroken_is_no_claim_to_remove(base: Path) -> None:
    newer = newer_claim(job(base).places)

    with pytest.raises(FormatError) as told:
        lease.current_claim(job(base).places.lease)

    assert is_refusal(str(told.value), newer) and "remove it" not in str(told.value)


def test_a_training_by_hand_goes_on_only_where_it_knows_all(tmp_path: Path) -> None:
    home = Home(tmp_path / "run", "training", Saves(keep=1), has_history=True)
    draft = home.new_draft()
    (draft / "state").write_text("1\n")
    home.hand_over(draft, Handover(Progress(1, 5, "steps")))
    home.close()
    newer = newer_passport(home.places)
    before = snapshot(tmp_path)

    with pytest.raises(FormatError) as told:
        Home(tmp_path / "run", "training", Saves(keep=1), has_history=True)

    assert is_refusal(str(told.value), newer)
    assert snapshot(tmp_path) == before
