"""A mistake in the configuration: one line each, exit code 1, and nothing is begun."""

import subprocess
import sys
from pathlib import Path

import pytest
from support.workdir import ROOT, WorkDir


@pytest.mark.parametrize("words", [[], ["-n"]], ids=["run", "dry run"])
def test_every_mistake_is_one_line_and_nothing_is_begun(work: WorkDir, words: list[str]) -> None:
    work.write(
        "config/config.yaml",
        "runs:\n"
        "  demo: {engine: toy, segmets: 3, segment_minutes: 0, settings: {goal: 5}}\n"
        "  other: {engine: toy, segments: 3, segment_minutes: 1, settings: {gaol: 5}}\n",
    )

    done = work.snakemake(*words)

    assert done.code == 1
    assert [line for line in done.text.splitlines() if not line.startswith("Using workflow specific profile")] == [
        "unbroken: runs.demo.segmets: unknown key; did you mean `segments`?",
        "unbroken: runs.demo.segment_minutes: found 0, allowed: a number above 0, or {at_least: 60, at_most: 480}",
        "unbroken: runs.other.settings.gaol: unknown key; did you mean `goal`?",
    ]
    assert not (work.root / "results").exists()
    assert not (work.root / "logs").exists()
    assert [path.name for path in work.root.glob(".snakemake/*") if path.name != "log"] == []


def test_a_config_without_runs_says_what_to_type(work: WorkDir) -> None:
    work.write("config/config.yaml", "runs: {}\n")

    done = work.snakemake()

    assert done.code == 1
    assert done.lines("unbroken: ") == [
        "unbroken: runs: found none, allowed: one run or more; type one under `runs:` or name a table with "
        "`runs_table:`"
    ]


ALIASES = "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10))
TOO_MUCH = {
    "a value of 50 MB": (f"note: {'x' * 50_000_000}\n", "50 MB, allowed: at most 20 MB; name large data by its path"),
    "aliases": (
        f"a0: &a0 [x, x]\n{ALIASES}\n",
        "its aliases (*name) stand for more than 1,000,000 values; write out what is meant",
    ),
}


@pytest.mark.parametrize("what", TOO_MUCH)
def test_a_config_that_is_too_much_is_one_line(work: WorkDir, what: str) -> None:
    text, line = TOO_MUCH[what]
    work.write("config/config.yaml", f"{text}runs:\n  demo: {{engine: toy, segments: 3, segment_minutes: 1}}\n")

    done = work.snakemake("-n")

    assert (done.code, done.lines("unbroken: ")) == (1, [f"unbroken: config/config.yaml: {line}"])


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"runs:\n  demo:\n\tengine: toy\n", " line 3: a tab; type spaces"),
        (
            b"runs:\n  a:\n    b: 3\n    c d\n",
            " line 4: a colon is missing; type `name: value`, with a space behind it",
        ),
        (b"runs: {}\n# \xe4\n", " line 2: bytes that are not UTF-8, allowed: text saved as UTF-8"),
        (b"", ": found nothing, allowed: names with a colon, `runs:` among them"),
        (b"- runs\n", ": found a list, allowed: names with a colon, `runs:` among them"),
    ],
)
def test_a_config_that_is_no_yaml_is_one_line_and_no_traceback(work: WorkDir, content: bytes, line: str) -> None:
    work.write("config/config.yaml", "").write_bytes(content)

    done = work.snakemake("-n")

    assert (done.code, done.lines("unbroken: ")) == (1, [f"unbroken: config/config.yaml{line}"]), done.text
    assert "Error" not in done.text


def test_no_config_at_all_is_named_without_a_traceback(work: WorkDir) -> None:
    done = work.snakemake()

    assert done.code == 1
    assert "config/config.yaml" in done.text
    assert "Traceback" not in done.text


def test_an_empty_environment_is_enough(work: WorkDir) -> None:
    """Snakemake's scheduler alone would fail for want of PATH."""
    work.configure({"demo": {"engine": "toy", "segments": 1, "segment_minutes": 1, "settings": {"goal": 3}}})
    command = [Path(sys.executable).with_name("snakemake"), "-s", ROOT / "Snakefile", "--cores", "1"]

    done = subprocess.run(command, cwd=work.root, env={}, capture_output=True, text=True, timeout=200)

    assert done.returncode == 0, done.stderr
    assert (work.places("demo").final / "trace.csv").is_file()
