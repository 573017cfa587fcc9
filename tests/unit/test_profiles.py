import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
import yaml
from snakemake_executor_plugin_slurm.partitions import PartitionLimits
from support.prefork import SNAKEMAKE, start_script
from support.workdir import PATIENCE_SECONDS

from unbroken.engines.found import known_schemas

ROOT = Path(__file__).parents[2]
PROFILES = sorted(ROOT.glob("profiles/*/profile.yaml"))
SAFETY_LINES = {
    "rerun-triggers": "mtime",
    "rerun-incomplete": True,
    "nolock": True,
    "keep-going": True,
    "retries": 3,
    "logger": "unbroken",
}
# What Snakemake makes of a command line, asked of Snakemake itself.
ASK = """
import json, sys
from snakemake.cli import parse_args
names = sys.argv.pop(1).split(",")
args = parse_args(sys.argv[1:])[1]
print(json.dumps({name: str(getattr(args, name)) for name in names}))
"""


def read_profile(name: str) -> dict[str, object]:
    return yaml.safe_load((ROOT / "profiles" / name / "profile.yaml").read_text())


def ask_snakemake(*words: str, names: str, cwd: Path = ROOT, **environment: str) -> dict[str, object]:
    clean = {key: value for key, value in os.environ.items() if key != "SNAKEMAKE_PROFILE"}
    with tempfile.TemporaryDirectory() as folder, Path(folder, "answer").open("w+") as answer:
        program = Path(folder, "ask.py")
        program.write_text(ASK)
        command = [sys.executable, str(program), names, *words]
        code = start_script(command, SNAKEMAKE, cwd, {**clean, **environment}, answer).wait(PATIENCE_SECONDS)
        text = Path(folder, "answer").read_text()
    assert code == 0, text
    return yaml.safe_load(text.splitlines()[-1])


@pytest.mark.parametrize("profile", PROFILES, ids=lambda path: path.parent.name)
def test_every_profile_carries_the_same_safety_lines(profile: Path) -> None:
    lines = yaml.safe_load(profile.read_text())

    assert {key: lines.get(key) for key in SAFETY_LINES} == SAFETY_LINES


@pytest.mark.parametrize("profile", PROFILES, ids=lambda path: path.parent.name)
def test_every_profile_line_has_its_reason_above_it(profile: Path) -> None:
    lines = profile.read_text().splitlines()
    keys = [number for number, line in enumerate(lines) if re.match(r" *[a-z][a-z_-]*: *\S", line)]

    without_reason = [lines[n] for n in keys if not _has_reason(lines, n)]

    assert without_reason == []


def _has_reason(lines: list[str], number: int) -> bool:
    above = lines[number - 1].strip()
    if above.startswith("?"):  # the condition under which the line holds
        above = lines[number - 2].strip()
    return above.startswith("#")


@pytest.mark.parametrize("profile", PROFILES, ids=lambda path: path.parent.name)
def test_no_profile_keeps_torn_records(profile: Path) -> None:
    assert "keep-incomplete" not in yaml.safe_load(profile.read_text())


@pytest.mark.parametrize(
    "profile", [path for path in PROFILES if path.parent.name != "default"], ids=lambda path: path.parent.name
)
def test_the_default_profile_overrides_no_line_of_another_one(profile: Path) -> None:
    default = read_profile("default")
    other = yaml.safe_load(profile.read_text())

    differing = {key for key in default.keys() & other.keys() if default[key] != other[key]}

    assert differing == set()


def test_the_link_at_the_top_level_leads_to_the_slurm_profile() -> None:
    assert os.readlink(ROOT / "slurm") == "profiles/slurm"


@pytest.mark.process
def test_profile_slurm_is_found_from_the_top_level_and_keeps_its_own_lines() -> None:
    names = "executor,jobs,latency_wait,nolock,retries,cores"

    asked = ask_snakemake("--profile", "slurm", names=names)

    assert asked == {
        "executor": "unbroken",
        "jobs": "100",
        "latency_wait": "60",
        "nolock": "True",
        "retries": "3",
        "cores": "None",
    }


@pytest.mark.process
def test_profile_slurm_brings_its_site_from_wherever_it_lies(tmp_path: Path) -> None:
    copy = shutil.copytree(ROOT / "profiles" / "slurm", tmp_path / "elsewhere")

    here = ask_snakemake("--profile", "slurm", "--directory", "examples/toy", names="configfile")
    there = ask_snakemake("--profile", str(copy), names="configfile")

    assert (here["configfile"], there["configfile"]) == ("[PosixPath('slurm/site.yaml')]", f"[{copy / 'site.yaml'!r}]")


@pytest.mark.process
def test_the_site_has_a_line_for_every_key_and_the_schemas_default() -> None:
    text = (ROOT / "profiles" / "slurm" / "site.yaml").read_text()
    written = yaml.safe_load(text)["site"]
    schema = known_schemas().site

    assert set(written) == set(schema.keys) - {"partition"}
    assert {key: value for key, value in written.items() if key != "places"} == {
        key.name: key.schema["default"] for key in schema.keys.values() if key.name in written and key.name != "places"
    }
    lines = text.splitlines()
    assert [line for n, line in enumerate(lines) if re.match(r"  [a-z_]+:", line) and not _has_reason(lines, n)] == []


def test_the_partitions_that_come_along_are_none_and_the_example_in_the_file_is_one() -> None:
    text = (ROOT / "profiles" / "slurm" / "partitions.yaml").read_text()
    example = yaml.safe_load("\n".join(re.findall(r"^# (partitions:|  .*)$", text, re.MULTILINE)))

    assert yaml.safe_load(text) == {"partitions": {}}
    assert PartitionLimits(**example["partitions"]["long"]).max_runtime == 10080


@pytest.mark.process
@pytest.mark.parametrize("word", ["--profile=slurm", "--executor=slurm", "-eslurm"])
def test_jobs_that_run_elsewhere_are_not_cut_to_the_cores_of_this_machine(word: str) -> None:
    assert ask_snakemake(word, names="cores") == {"cores": "None"}


@pytest.mark.process
def test_a_profile_named_in_the_environment_counts_as_named() -> None:
    assert ask_snakemake(names="cores", SNAKEMAKE_PROFILE="profiles/slurm") == {"cores": "None"}


@pytest.mark.process
@pytest.mark.parametrize("words", [[], ["--directory", "examples/toy"]], ids=["plain", "in an example"])
def test_the_default_profile_applies_by_itself_in_a_clone(words: list[str]) -> None:
    asked = ask_snakemake(*words, names="cores,nolock,rerun_incomplete,keep_going,retries")

    assert asked == {
        "cores": str(len(os.sched_getaffinity(0))),
        "nolock": "True",
        "rerun_incomplete": "True",
        "keep_going": "True",
        "retries": "3",
    }
