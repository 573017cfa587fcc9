"""A program that already ran by hand goes on as a run: its results are those of one uninterrupted run."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from support.command_jobs import WALKER, command_job, command_segment, walker_settings
from support.toyrun import flip_byte, until

from unbroken.engines.command.engine import CommandEngine
from unbroken.engines.imports import ImportSource
from unbroken.errors import CheckpointError, ConfigError, IdentityError, NoCheckpointError
from unbroken.job.attempt import Job
from unbroken.job.import_export import export_run, import_run
from unbroken.store import lease
from unbroken.store.attempts import unfinished_imports
from unbroken.store.checkpoint import Checkpoint
from unbroken.store.checkpoints import Store
from unbroken.store.history import EndKind

pytestmark = pytest.mark.process

STYLES = ("numbered", "rename", "marker")


def walked(folder: Path, *words: object, resume: str = "", code: int = 0) -> Path:
    """The walker by hand in a folder, which it goes on in where that is there."""
    folder.mkdir(exist_ok=True)
    again = ["--resume", resume] if resume else []
    done = subprocess.run([sys.executable, "-I", "-S", str(WALKER), *map(str, words), *again], cwd=folder, check=False)
    assert done.returncode == code
    return folder


def killed_walk(folder: Path, *words: object, at: int, resume: str = "") -> Path:
    """The same, killed behind a step: what was in its buffer is lost, and rows behind the last save are written."""
    folder.mkdir(exist_ok=True)
    again = ["--resume", resume] if resume else []
    command = [sys.executable, "-I", "-S", str(WALKER), "--step-seconds", "0.002", *map(str, words), *again]
    process = subprocess.Popen(command, cwd=folder)
    until(lambda: f"\n{at}," in (folder / "trace.csv").read_text() if (folder / "trace.csv").exists() else False)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    return folder


def whole_table(folder: Path, goal: int = 200) -> bytes:
    return (walked(folder, "--goal", goal) / "trace.csv").read_bytes()


def taken(job: Job, source: Path, done: float | None = None) -> Checkpoint:
    return import_run(job, CommandEngine(job.base), ImportSource(source, done))


def finished(base: Path, settings: dict[str, object]) -> bytes:
    """The table of a run that has come to its goal."""
    assert command_segment(base, settings).kind is EndKind.FINISHED
    return (command_job(base, settings).places.final / "trace.csv").read_bytes()


@pytest.mark.parametrize("style", STYLES)
def test_half_by_hand_and_half_imported_is_one_run(style: str, tmp_path: Path) -> None:
    settings = walker_settings(style=style)
    half = killed_walk(tmp_path / "half", "--goal", 200, "--style", style, "--save-steps", 40, at=90)

    checkpoint = taken(command_job(tmp_path, settings), half)

    passport = checkpoint.passport
    assert (passport.segment, passport.parent, passport.progress.unit) == (0, None, "steps")
    assert passport.progress.done in (40, 80)
    assert passport.imported is not None and passport.imported.source == str(half)
    assert finished(tmp_path, settings) == whole_table(tmp_path / "whole")
    last = Store(command_job(tmp_path, settings).places.checkpoints).readable()[-1].passport
    assert last.imported == passport.imported  # also once the first one is pruned


def test_a_table_that_was_written_on_after_two_kills_is_taken_once(tmp_path: Path) -> None:
    settings = walker_settings()
    half = killed_walk(tmp_path / "half", "--goal", 200, at=40)
    second = max(half.glob("walk.*.json")).name
    killed_walk(half, "--goal", 200, at=90, resume=second)
    (half / max(half.glob("walk.*.json")).name).unlink()  # torn, say
    third = max(half.glob("walk.*.json")).name
    walked(half, "--goal", 130, resume=third)
    assert (half / "trace.csv").read_text().count("step,value") == 3

    taken(command_job(tmp_path, settings), half)

    assert finished(tmp_path, settings) == whole_table(tmp_path / "whole")


def test_the_program_s_own_folder_stays_as_it_was(tmp_path: Path) -> None:
    half = walked(tmp_path / "half", "--goal", 100)
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in half.iterdir()}

    taken(command_job(tmp_path, walker_settings()), half)

    assert {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in half.iterdir()} == before
    assert [path.name for path in command_job(tmp_path, walker_settings()).places.checkpoints.glob(".*")] == []


def test_records_that_a_kill_left_in_the_buffer_let_an_earlier_restart_file_count(tmp_path: Path) -> None:
    settings = walker_settings()
    half = walked(tmp_path / "half", "--goal", 100)
    rows = (half / "trace.csv").read_text().splitlines(keepends=True)
    (half / "trace.csv").write_text("".join(rows[:-15]) + rows[-15][:3])  # to row 85, torn within 86

    checkpoint = taken(command_job(tmp_path, settings), half)

    assert checkpoint.passport.progress.done == 80
    assert finished(tmp_path, settings) == whole_table(tmp_path / "whole")


def test_what_was_checked_stands_in_the_passport(tmp_path: Path) -> None:
    settings = {**walker_settings(), "check_command": ["sh", "-c", "grep -q filling walk.*.json"]}
    half = walked(tmp_path / "half", "--goal", 110)
    (half / "walk.000110.json").write_text("{")  # torn; the one before counts

    imported = taken(command_job(tmp_path, settings), half).passport.imported

    assert imported is not None
    assert imported.checked == (
        "restart files that belong together: walk.000100.json",
        "check_command sh -c grep -q filling walk.*.json found them complete",
        "how far they are: the names of `files` have 000100 in them",
        "trace.csv: its records up to 100, each once",
    )
    assert imported.not_checked == ()


@pytest.mark.parametrize(
    ("spoil", "line"),
    [
        ("trace", "has no trace.csv, which `outputs` names: the joined results would lack their beginning"),
        ("files", r"no complete file in it matches walk.\{progress\}.json; nothing was imported"),
        ("goal", "it is at 200 steps, and the goal is 200: nothing is left to do; raise the goal"),
        ("early", "trace.csv: records are missing: it ends at 3, but the restart files say"),
        ("late", "trace.csv: records are missing: it begins at 50; put back what the program wrote before"),
        ("done", "--done: the files themselves say how far they are; leave it out"),
        ("gone", "--from: found '.*half', but there is no such file or folder"),
        ("file", "--from: found .*, a file; allowed: the folder in which the program ran"),
    ],
)
def test_what_does_not_fit_is_refused_and_leaves_nothing(spoil: str, line: str, tmp_path: Path) -> None:
    settings = {**walker_settings(), **({"saved_by": "rename"} if spoil in ("goal", "early") else {})}
    half = walked(tmp_path / "half", "--goal", 200 if spoil == "goal" else 100)
    if spoil == "trace":
        (half / "trace.csv").unlink()
    elif spoil == "files":
        for path in half.glob("walk.*.json"):
            path.unlink()
    elif spoil == "early":
        (half / "trace.csv").write_text("step,value\n0,1\n1,2\n2,3\n3,4\n")
    elif spoil == "late":
        rows = (half / "trace.csv").read_text().splitlines(keepends=True)
        (half / "trace.csv").write_text("".join(rows[:1] + rows[51:]))
    source = {"gone": half / "no" / "half", "file": half / "trace.csv"}.get(spoil, half)
    job = command_job(tmp_path, settings)

    with pytest.raises((CheckpointError, ConfigError), match=line):
        taken(job, source, 100.0 if spoil == "done" else None)

    assert Store(job.places.checkpoints).names() == []
    assert not unfinished_imports(job.places.work)
    assert command_segment(tmp_path, settings).kind is EndKind.FINISHED  # from the start


def test_an_import_that_was_broken_off_is_still_to_be_repeated_after_another_one_was_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = walker_settings()
    half, job = walked(tmp_path / "half", "--goal", 100), command_job(tmp_path, settings)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(CommandEngine, "import_files", lambda *_: signal.raise_signal(signal.SIGINT))
        taken(job, half)
    with pytest.raises(ConfigError):
        taken(job, tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError):
        taken(job, tmp_path / "empty")

    with pytest.raises(ConfigError, match=rf"the import of {half} was interrupted"):
        command_segment(tmp_path, settings)
    taken(job, half)

    assert not unfinished_imports(job.places.work)
    assert list(job.places.work.iterdir()) == []


def test_a_run_that_has_a_checkpoint_imports_none(tmp_path: Path) -> None:
    settings = walker_settings()
    half = walked(tmp_path / "half", "--goal", 100)
    first = taken(command_job(tmp_path, settings), half)

    with pytest.raises(ConfigError, match=rf"demo: has {first.name} already, .* type: unbroken restart demo"):
        taken(command_job(tmp_path, settings), half)

    assert Store(command_job(tmp_path, settings).places.checkpoints).names() == [first.name]


def test_a_run_that_a_job_holds_imports_nothing(tmp_path: Path) -> None:
    job = command_job(tmp_path, walker_settings())
    half = walked(tmp_path / "half", "--goal", 100)

    with (
        lease.take(job.places.lease, 1, 0.0),
        pytest.raises(ConfigError, match=r"demo: .*held, segment 1 by process"),
    ):
        taken(job, half)

    assert Store(job.places.checkpoints).names() == []


LAMMPS = Path(__file__).parents[2] / "examples" / "lammps"


@pytest.mark.slow
@pytest.mark.needs("lammps")
def test_half_of_a_lammps_melt_that_was_killed_and_half_imported_is_one_melt(tmp_path: Path) -> None:
    told = yaml.safe_load((LAMMPS / "config" / "config.yaml").read_text())["runs"]["melt"]["settings"]
    settings = {**told, "goal": 600}
    for name in settings["inputs"]:
        shutil.copyfile(LAMMPS / name, tmp_path / name)
        for folder in ("half", "whole"):
            (tmp_path / folder).mkdir(exist_ok=True)
            shutil.copyfile(LAMMPS / name, tmp_path / folder / name)
    command = ["lmp", "-in", "start.in", "-var", "total", "600", "-var", "limit", "1:00:00", "-screen", "none"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(command, cwd=tmp_path / "whole", env=environment, check=True)
    half = subprocess.Popen(command, cwd=tmp_path / "half", env=environment)
    until(lambda: (tmp_path / "half" / "melt.300.rst").exists())
    half.kill()
    half.wait()

    passport = taken(command_job(tmp_path, settings), tmp_path / "half").passport
    record = command_segment(tmp_path, settings)

    assert (passport.progress.done in (100, 200, 300, 400), record.kind) == (True, EndKind.FINISHED)
    assert passport.imported is not None and "input" not in "\n".join(passport.imported.not_checked)
    final = command_job(tmp_path, settings).places.final
    for name in ("thermo.dat", "melt.lammpstrj"):
        assert (final / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


# --- and back ---


def given_back(job: Job, target: Path, which: str = "") -> Checkpoint:
    return export_run(job, CommandEngine(job.base), target, which)


def half_way(base: Path, settings: Mapping[str, object]) -> Job:
    """A run that has worked for a while."""
    job = command_job(base, settings)
    assert command_segment(base, {**settings, "goal": 120}).kind is EndKind.FINISHED
    return job


def test_what_a_program_appends_to_is_exported_up_to_the_checkpoint(tmp_path: Path) -> None:
    script = "n=$(cat n 2>/dev/null || echo 0); for i in 1 2 3; do n=$((n + 1)); echo $n >> log; done; echo $n > n"
    settings = {
        "start": ["sh", "-c", f"{script}; exit 0"],
        "files": ["n"],
        "progress_file": "n",
        "progress_pattern": r"^(\d+)",
        "goal": 6,
        "exit_paused": [0],
    }
    assert command_segment(tmp_path, settings).kind is EndKind.PAUSED

    given_back(command_job(tmp_path, settings), tmp_path / "exported")
    subprocess.run([tmp_path / "exported" / "resume.sh"], cwd="/", check=True)

    assert (tmp_path / "exported" / "log").read_text() == "1\n2\n3\n4\n5\n6\n"
    assert command_segment(tmp_path, settings, segment=2).kind is EndKind.FINISHED
    assert (command_job(tmp_path, settings).places.final / "log").read_text() == "1\n2\n3\n4\n5\n6\n"


def test_half_by_unbroken_and_half_by_hand_is_one_run(tmp_path: Path) -> None:
    job = half_way(tmp_path, walker_settings(style="rename"))
    target = tmp_path / "elsewhere"

    given_back(job, tmp_path / "exported")
    (tmp_path / "exported").rename(target)  # it names nothing by a path of its own
    subprocess.run([target / "resume.sh"], cwd="/", check=True)

    first, again = (target / "so-far" / "trace.csv").read_text(), (target / "trace.csv").read_text()
    head, last, rest = again.split("\n", 2)
    assert (head, last) == ("step,value", first.splitlines()[-1])  # the program's own way to go on
    assert first + rest == whole_table(tmp_path / "whole").decode()
    assert "_120-steps_" in (target / "EXPORT.txt").read_text()


def test_what_was_exported_can_be_imported(tmp_path: Path) -> None:
    settings = walker_settings(style="rename")
    given_back(half_way(tmp_path / "one", settings), tmp_path / "out")
    out = walked(tmp_path / "out", "--goal", 160, "--style", "rename", resume="walk.json")
    (out / "trace.csv").write_bytes((out / "so-far" / "trace.csv").read_bytes() + (out / "trace.csv").read_bytes())

    checkpoint = taken(command_job(tmp_path / "two", settings), tmp_path / "out")

    assert checkpoint.passport.progress.done == 160
    assert finished(tmp_path / "two", settings) == whole_table(tmp_path / "whole")


def test_an_export_takes_what_is_good_and_leaves_the_run_as_it_is(tmp_path: Path) -> None:
    settings = walker_settings(style="rename")
    for segment, goal in enumerate((60, 120), 1):
        command_segment(tmp_path, {**settings, "goal": goal}, segment)
    job = command_job(tmp_path, settings)
    names = Store(job.places.checkpoints).names()
    flip_byte(job.places.checkpoints / names[-1] / "walk.json")
    before = sorted(path.relative_to(tmp_path).as_posix() for path in job.places.root.rglob("*"))

    assert given_back(job, tmp_path / "newest").name == names[-2]
    assert given_back(job, tmp_path / "first", str(int(names[0].partition("_")[0]))).name == names[0]
    with pytest.raises(CheckpointError, match="the content changed"):
        given_back(job, tmp_path / "bad", names[-1])
    with pytest.raises(NoCheckpointError, match=f"demo: has no checkpoint '99'; allowed: {names[0]}"):
        given_back(job, tmp_path / "none", "99")
    with pytest.raises(ConfigError, match="first exists; nothing was written; name another"):
        given_back(job, tmp_path / "first")
    with pytest.raises(IdentityError, match="not the computation that checkpoint"):
        given_back(command_job(tmp_path, walker_settings(style="rename", seed=9)), tmp_path / "other")

    assert sorted(path.relative_to(tmp_path).as_posix() for path in job.places.root.rglob("*")) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first", "logs", "newest", "results"]


# --- as it is typed ---


def test_the_commands_say_what_they_did(tmp_path: Path) -> None:
    walked(tmp_path / "half", "--goal", 120, "--style", "rename")
    (tmp_path / "config").mkdir()
    run = {"engine": "command", "segments": 3, "segment_minutes": 1, "settings": walker_settings(style="rename")}
    (tmp_path / "config" / "config.yaml").write_text(yaml.safe_dump({"runs": {"demo": run}}))

    imported = typed(tmp_path, "import", "demo", "--from", "half")
    status = typed(tmp_path, "status")
    twice = typed(tmp_path, "import", "demo", "--from", "half", code=1)
    exported = typed(tmp_path, "export", "demo")
    typed(tmp_path, "run")

    lines = imported.splitlines()
    assert re.fullmatch(r"demo: imported 000001_120-steps_\S+_t1 \(120 of 200 steps\)", lines[0])
    assert "  checked: trace.csv: its records up to 120, each once" in lines
    assert "  not checked: whether they are complete: no check_command says it (saved_by: rename)" in lines
    assert lines[-1] == "demo: to continue, type: unbroken run"
    assert "120" in status and "not started" not in status
    assert "demo: has 000001_120-steps_" in twice
    assert exported.endswith("demo: to continue there, type: demo-export/resume.sh\n")
    assert "finished" in typed(tmp_path, "status")
    assert (tmp_path / "results" / "demo" / "final" / "trace.csv").read_bytes() == whole_table(tmp_path / "whole")
    assert "1 of 1 checkpoints are whole" not in typed(tmp_path, "verify")


def typed(folder: Path, *words: str, code: int = 0) -> str:
    done = subprocess.run([sys.executable, "-m", "unbroken", *words], cwd=folder, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr
