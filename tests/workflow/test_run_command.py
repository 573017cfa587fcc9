"""`unbroken run` from anywhere: the chain of another folder, and the line of `snakemake` that it prints."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from support.workdir import BIN, WorkDir, one_step_segments

from unbroken.cli.run_command import chosen_profile, command_for
from unbroken.config.package_files import install_line, root_folder
from unbroken.errors import ConfigError


def run(work: WorkDir, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [BIN / "unbroken", "run", *words]
    environment = {key: value for key, value in os.environ.items() if key != "SNAKEMAKE_PROFILE"}
    return subprocess.run(command, cwd=cwd or work.root, env=environment, capture_output=True, text=True)


@pytest.fixture
def plain(work: WorkDir) -> WorkDir:
    """A folder with a config and nothing else."""
    work.configure({"a": one_step_segments(3, 2), "b": one_step_segments(2, 9)})
    for path in work.root.iterdir():
        if path.name != "config":
            path.unlink() if path.is_symlink() else None
    return work


def test_a_folder_with_a_config_alone_runs_from_anywhere_to_its_end_and_does_nothing_twice(plain: WorkDir) -> None:
    elsewhere = plain.root.parent / "elsewhere"
    elsewhere.mkdir()

    first = run(plain, "-d", str(plain.root), cwd=elsewhere)
    again = run(plain, cwd=plain.root)

    assert first.returncode == again.returncode == 0, first.stderr
    snakefile = root_folder() / "Snakefile"
    assert first.stdout.startswith(
        f"unbroken: snakemake --logger unbroken --snakefile {snakefile} --directory {plain.root}\n"
    )
    assert again.stdout.startswith(f"unbroken: snakemake --logger unbroken --snakefile {snakefile}\n")
    assert [record.segment for record in plain.records("a")] == [1, 2, 3]
    assert [record.segment for record in plain.records("b")] == [1, 2]
    assert list(elsewhere.iterdir()) == []
    assert "Nothing to be done" in again.stderr


def test_the_printed_line_does_the_same(plain: WorkDir) -> None:
    said = run(plain, "b", "--", "--dry-run", "--quiet", "all")
    line = said.stdout.splitlines()[0].removeprefix("unbroken: ")

    typed = subprocess.run(
        ["bash", "-c", f"{shlex.quote(str(BIN))}/{line.replace(' --dry-run', '')}"],
        cwd=plain.root,
        capture_output=True,
        text=True,
    )

    assert said.returncode == 0, said.stderr
    assert line.endswith(" --dry-run --quiet all -- results/b/segments/{001..002}.json")
    assert typed.returncode == 0, typed.stderr
    assert [record.segment for record in plain.records("b")] == [1, 2]
    assert not (plain.root / "results/a").exists()


def test_a_snakefile_of_the_folder_comes_first(plain: WorkDir) -> None:
    plain.write("Snakefile", "rule mine:\n    output: 'made'\n    shell: 'touch {output}'\n")

    done = run(plain, "-d", str(plain.root), "--", "--cores", "1", cwd=Path("/"))

    assert done.returncode == 0, done.stderr
    assert (plain.root / "made").exists()


def test_what_is_missing_or_too_much_is_one_line(work: WorkDir, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()

    done = run(work, "-d", str(empty))
    unknown = run(work, "--slurm", "--detached")

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"unbroken: config/config.yaml: not found in {empty}; to begin here, type: unbroken init -d {empty}; "
        "for runs of another folder, add: -d FOLDER\n"
    )
    assert unknown.stderr == "unbroken: run: found --slurm and --detached; type one of them\n"


def test_a_name_that_is_no_run_is_refused_with_those_that_there_are(plain: WorkDir) -> None:
    done = run(plain, "c")

    assert (done.returncode, done.stderr) == (1, "unbroken: no run is named 'c', allowed: a, b\n")


def test_a_profile_is_looked_for_in_the_folder_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    (tmp_path / "Snakefile").touch()
    with pytest.raises(
        ConfigError, match=r"profiles/slurm: not found; type: unbroken profile slurm --to .*profiles/slurm"
    ):
        command_for([], tmp_path, "slurm", [])

    (tmp_path / "profiles" / "slurm").mkdir(parents=True)
    words, typed = command_for(["x y", "r/segments/009.json", "r/segments/010.json"], tmp_path, "slurm", ["-n"])

    assert words[-6:] == [
        str(tmp_path / "profiles/slurm"),
        "-n",
        "--",
        "x y",
        "r/segments/009.json",
        "r/segments/010.json",
    ]
    assert typed.endswith(f"--profile {tmp_path}/profiles/slurm -n -- 'x y' r/segments/{{009..010}}.json")
    assert command_for([], tmp_path, "mine", [])[0][-1] == "mine"
    assert [
        chosen_profile(slurm=True, detached=False, profile=None),
        chosen_profile(slurm=False, detached=True, profile=None),
    ] == ["slurm", "slurm"]
    assert [
        chosen_profile(slurm=False, detached=False, profile="mine"),
        chosen_profile(slurm=False, detached=False, profile=None),
    ] == ["mine", None]


def test_where_snakemake_is_missing_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "Snakefile").touch()
    lines = [
        "import importlib.util, pathlib",
        "from unbroken.cli.run_command import command_for",
        "importlib.util.find_spec = lambda name: None",
        f"command_for([], pathlib.Path({str(tmp_path)!r}), None, [])",
    ]

    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True)

    assert f"snakemake: not installed in this Python; type: {install_line(extra='workflow')}" in done.stderr
