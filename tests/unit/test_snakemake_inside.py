"""What is touched of Snakemake's inside: there in the release that was read, and never seen in a plan."""

import hashlib
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import snakemake.cli
import snakemake.io
from snakemake import dag
from snakemake.scheduling.job_scheduler import JobScheduler
from snakemake.workflow import Workflow
from support.toyrun import toy_run

from unbroken import snakemake_inside
from unbroken.plan.plan import Plan
from unbroken.snakemake_inside import OF_DAG
from unbroken.system import log

ROOT = Path(__file__).parents[2]
CONFIG = """
runs_table: config/runs.tsv
defaults: {engine: toy, segments: 3, segment_minutes: 60, settings: {goal: 100}}
"""
PLAIN = "from snakemake.cli import main; from unbroken import snakemake_inside; {}; main()"
WITHOUT = "snakemake_inside.look_once_for_scripts = lambda: []"


def planned(folder: Path, how: str, *words: str) -> str:
    """What Snakemake says of its plan, on both its screens."""
    snakefile = str(ROOT / "Snakefile")
    command = [sys.executable, "-c", PLAIN.format(how), "--cores", "2", "--snakefile", snakefile]
    command += ["--workflow-profile", "none", *words]  # which prints each job
    seed = {**os.environ, "PYTHONHASHSEED": "0"}  # some lines name files in the order of a set
    done = subprocess.run(command, cwd=folder, env=seed, capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "config.yaml").write_text(CONFIG)
    (tmp_path / "config" / "runs.tsv").write_text("run\tmem_mb\na\t500\nb\t700\n")
    return tmp_path


# The sha256 of the sources that were read (9.27.1), their first 16 digits.
READ = {dag.ScriptProcessor: "d10b32cb98cd4989"}


@pytest.mark.parametrize("changed", READ, ids=lambda thing: thing.__qualname__)
def test_what_is_changed_is_as_it_was_read(changed: object) -> None:
    assert hashlib.sha256(inspect.getsource(changed).encode()).hexdigest()[:16] == READ[changed]


@pytest.mark.process
@pytest.mark.parametrize(
    "words",
    [
        ["--dry-run"],
        ["--dry-run", "results/b/segments/002.json"],
        ["--dry-run", "--default-resources", "disk_mb=100*attempt", "--set-resources", "toy_segment:mem_mb=900"],
        ["--dry-run", "--forceall", "--rerun-triggers", "code", "params", "input", "mtime", "--printshellcmds"],
        ["--summary"],
        ["--dag"],
    ],
    ids=" ".join,
)
def test_a_plan_is_the_same_with_and_without(folder: Path, words: list[str]) -> None:
    quick = without_times(planned(folder, "pass", *words))

    assert quick == without_times(planned(folder, WITHOUT, *words))
    assert any("toy_segment" in block or "002" in block for block in quick)


def without_times(text: str) -> list[str]:
    """Each job's lines, in the order of their text: Snakemake takes jobs as a set has them, by their addresses."""
    left_out = ("[", "Date: ", "Workflow ID: ", "jobid: ")
    lines = [line for line in text.splitlines() if not line.lstrip().startswith(left_out)]
    return sorted(re.split(r"\n(?=\S)", "\n".join(lines)))


@pytest.mark.process
def test_a_script_that_is_not_there_is_told_as_ever(folder: Path) -> None:
    (folder / "Snakefile").write_text(
        "from unbroken import snakemake_inside\nsnakemake_inside.look_once_for_scripts()\n"
        "rule all:\n    input: 'a1', 'a2', 'b1'\n"
        "rule here:\n    output: 'a{n}'\n    script: 'here.py'\n"
        "rule gone:\n    output: 'b{n}'\n    script: 'gone_{wildcards.n}.py'\n"
    )
    (folder / "here.py").touch()
    command = [sys.executable, "-m", "snakemake", "--dry-run", "--cores", "1"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)

    assert done.returncode == 1
    assert "gone_1.py" in done.stdout + done.stderr


def test_each_script_is_looked_at_where_its_name_depends_on_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = []

    class Processor:
        script_type = "script"

        def process_job(self, job: object) -> None:
            looked.append(job)

    monkeypatch.setattr(dag, "ScriptProcessor", Processor)
    snakemake_inside.look_once_for_scripts()
    once, other, varied = [SimpleNamespace(name=name, script=script) for name, script in RULES]
    jobs = [SimpleNamespace(rule=rule) for rule in (once, once, other, varied, varied)]
    first, second = Processor(), Processor()
    for job in jobs:
        first.process_job(job)
    second.process_job(jobs[0])

    assert looked == [jobs[0], *jobs[2:], jobs[0]]


RULES = [("once", "a.py"), ("other", "a.py"), ("varied", "{wildcards.x}.py")]


def test_what_leaves_out_segments_is_there() -> None:
    """Without one of these names each segment that a run has left over is a job, as with another release."""
    made = inspect.getsource(JobScheduler)

    assert all(hasattr(dag.DAG, name) or f"self.{name} = " in inspect.getsource(dag.DAG) for name in OF_DAG)
    assert inspect.iscoroutinefunction(dag.DAG.finish)
    assert "self.workflow.dag.finish(" in made
    assert "self.finished_jobs += " in made


def test_what_hides_records_is_there() -> None:
    planning = inspect.getsource(Workflow.execute)

    assert "exists_local" in vars(snakemake.io._IOFile)
    assert planning.index("self._build_dag()") < planning.index("self.iocache.deactivate()")


def test_where_nothing_can_be_hidden_the_user_is_told_what_to_remove(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(snakemake.io._IOFile, "exists_local")
    plan, told = Plan((toy_run(),), tmp_path), list[str]()
    with log.lines_to(told.append):
        plan.hide_outdated()
        plan.__dict__["_outdated"] = [Path("results/demo/segments/003.json")]
        plan.hide_outdated()

    assert told == ["these records are out of date; type: rm results/demo/segments/003.json"]


def test_another_release_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(dag, "ScriptProcessor")

    snakemake_inside.look_once_for_scripts()
    monkeypatch.delattr(dag.DAG, "finish")
    snakemake_inside.leave_out(SimpleNamespace(dag=dag.DAG, touch=False, **DRIVEN), list)

    assert not hasattr(dag.DAG, "finish")


DRIVEN = {"remote_execution_settings": SimpleNamespace(immediate_submit=False)}
