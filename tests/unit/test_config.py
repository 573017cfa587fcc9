"""The configuration: complete runs from a good one."""

import copy
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from support.needs import require

from unbroken.config.load import read_runs
from unbroken.config.package_files import root_folder
from unbroken.engines.found import known_schemas
from unbroken.store.run import CopySettings, IdentityKeys

ROOT = root_folder()
SCHEMAS = known_schemas()
GOOD = "engine: toy, segments: 4, segment_minutes: 2"
TOY = "settings: {goal: 9}"


def read(text: str, base: Path = ROOT):
    return read_runs(yaml.safe_load(text), SCHEMAS, base)


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("480", (480, None)),
        ("{at_least: 60.0, at_most: 480}", (480, 60)),
        ("{at_least: 0.5, at_most: 0.5}", (0.5, 0.5)),
    ],
)
def test_a_segment_has_one_length_or_a_least_and_a_most(written: str, found: tuple[float, float | None]):
    (own,) = read(f"runs: {{demo: {{engine: toy, segments: 4, segment_minutes: {written}, {TOY}}}}}")
    (shared,) = read(f"defaults: {{segment_minutes: {written}}}\nruns: {{demo: {{engine: toy, segments: 4, {TOY}}}}}")

    assert (own.segment_minutes, own.least_minutes) == (shared.segment_minutes, shared.least_minutes) == found


def test_a_run_gets_every_default_of_the_schema():
    (run,) = read(f"runs: {{demo: {{{GOOD}, {TOY}}}}}")

    assert run.keys() == {
        "name": "demo",
        "engine": "toy",
        "segments": 4,
        "segment_minutes": 2,
        "has_counted_goal": True,
        "place": "short",
        "note": "",
        "threads": 1,
        "tasks": 1,
        "nodes": None,
        "mem_mb": 2000,
        "memory_growth": 1.5,
        "gpus": 0,
        "partition": None,
        "account": None,
        "qos": None,
        "constraint": None,
        "gpu_type": None,
        "slurm_extra": (),
        "keep": 2,
        "milestone_every": 0,
        "save_minutes": 10,
        "mtbf_hours": None,
        "stall_minutes": None,
        "first_margin_seconds": None,
        "attempts_without_progress": 2,
        "modules": (),
        "enter": (),
        "settings": {"goal": 9, "seed": 0, "step_seconds": 0.01, "save_steps": 0},
        "metric_goals": {},
        "copies": None,
        "least_minutes": None,
        "container": None,
        "container_options": (),
        "conda": None,
        "venv": None,
        "environment": "tell",
    }


def test_a_run_stands_above_defaults_and_defaults_above_the_schema():
    first, second = read(
        f"""
        defaults: {{{GOOD}, keep: 5, mem_mb: 500, stall_minutes: 3, settings: {{goal: 7, seed: 3}}}}
        runs:
          first: {{}}
          second: {{keep: 6, stall_minutes: null, settings: {{seed: 4}}}}
        """
    )

    assert (first.keep, first.resources.mem_mb, first.stall_minutes, first.settings["seed"]) == (5, 500, 3, 3)
    assert (second.keep, second.resources.mem_mb, second.stall_minutes, second.settings["seed"]) == (6, 500, None, 4)
    assert (second.settings["goal"], second.settings["save_steps"]) == (7, 0)


def test_what_a_run_says_of_its_copies_takes_the_place_of_the_default_as_a_whole():
    first, second, third = read(
        f"""
        defaults: {{{GOOD}, {TOY}, copies: {{folder: /backup, keep: 5}}}}
        runs:
          first: {{}}
          second: {{copies: {{folder: other, every_minutes: 30.0}}}}
          third: {{copies: null}}
        """
    )

    assert first.copies == CopySettings("/backup", 5, 0)
    assert second.copies == CopySettings("other", 2, 30)
    assert third.copies is None


def test_a_run_on_a_gpu_place_gets_a_gpu_unless_it_says_otherwise():
    runs = read(
        f"defaults: {{{GOOD}, {TOY}}}\nruns: {{a: {{place: gpu}}, b: {{}}, c: {{place: gpu, gpus: 0}}, d: {{gpus: 3}}}}"
    )

    assert [run.resources.gpus for run in runs] == [1, 0, 0, 3]


def test_defaults_hold_also_when_they_stand_below_the_runs():
    (run,) = read(f"runs: {{demo: {{{TOY}}}}}\ndefaults: {{{GOOD}, threads: 3}}")

    assert run.resources.threads == 3


def test_runs_come_in_the_order_of_the_file():
    runs = read(f"defaults: {{{GOOD}, {TOY}}}\nruns: {{b: {{}}, c: {{}}, a: {{}}}}")

    assert [run.name for run in runs] == ["b", "c", "a"]


def test_a_whole_number_may_be_written_with_a_point():
    (run,) = read("runs: {demo: {engine: toy, segments: 4.0, segment_minutes: 2.0, settings: {goal: 9, seed: 1.0e+3}}}")

    assert [repr(value) for value in (run.segments, run.segment_minutes, run.settings["seed"])] == ["4", "2", "1000"]


def test_paths_stay_as_written_and_are_looked_up_from_the_base(tmp_path):
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").touch()

    (run,) = read(
        f"runs: {{a: {{{GOOD.replace('toy', 'torch')}, settings: {{script: code/train.py, goal: 1}}}}}}", tmp_path
    )

    assert run.settings["script"] == "code/train.py"


def test_a_run_travels_to_its_job_and_shares_nothing_with_the_schema():
    (run,) = read(f"runs: {{a: {{{GOOD}, {TOY}, modules: [gcc]}}}}")

    assert pickle.loads(pickle.dumps(run)) == run
    assert run.environment.modules == ("gcc",)
    run.settings["seed"] = 99  # type: ignore[index]
    assert read(f"runs: {{a: {{{GOOD}, {TOY}}}}}")[0].settings["seed"] == 0


def test_reading_changes_nothing_in_what_was_written():
    config = yaml.safe_load(f"defaults: {{{GOOD}, {TOY}}}\nruns: {{a: {{modules: [x]}}}}")
    before = copy.deepcopy(config)

    read_runs(config, SCHEMAS, ROOT)

    assert config == before


def test_empty_defaults_are_no_mistake():
    assert len(read(f"defaults:\nruns_table:\nruns: {{demo: {{{GOOD}, {TOY}}}}}")) == 1


def test_the_identity_of_an_engine_is_what_its_schema_says():
    assert known_schemas().engines["toy"].identity == IdentityKeys(("seed",), (), ())
    assert known_schemas().engines["torch"].identity == IdentityKeys(("args",), ("script", "inputs"), ("threads",))


@pytest.mark.process
@pytest.mark.parametrize(
    "folder",
    [
        ROOT,
        # One has an engine of its own to install (tests/project/test_engine_package.py).
        *sorted(
            {path.parents[1] for path in ROOT.glob("examples/*/config/config.yaml")}
            - {ROOT / "examples/engine_package"}
        ),
    ],
)
def test_the_configurations_that_come_along_are_good(folder, tmp_path):
    if (folder / "build.sh").exists():  # it makes what the config names
        require("gromacs")
        folder = shutil.copytree(folder, tmp_path / "example")
        subprocess.run([folder / "build.sh"], check=True, capture_output=True)

    runs = read((folder / "config" / "config.yaml").read_text(), folder)

    assert runs


@pytest.mark.process
def test_importing_unbroken_needs_none_of_the_libraries():
    script = """
import sys
import unbroken, unbroken.store.run, unbroken.job.lifecycle, unbroken.job.attempt
assert not {"yaml", "jsonschema"} & set(sys.modules)
"""

    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
