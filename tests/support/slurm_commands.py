"""Slurm's commands as shell scripts, for what a real controller cannot be brought to say when it is wanted."""

import os
from pathlib import Path

import pytest
from support.toyrun import toy_run

from unbroken.detached import targets
from unbroken.detached.pending_jobs import DETACHED_JOB_NAME
from unbroken.detached.successors import BEFORE, Template

WORDS = ("--parsable", "--output", "x", "--comment", "y", "-p", "short", "--mem", "100", "--exclude=node9", "-D", "/w")


class Slurm:
    """Commands that answer as Slurm does, and keep what sbatch was told."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        (folder / "bin").mkdir()
        (folder / "queue").touch()
        self.answer("squeue", f"cat {folder}/queue")
        self.answer("sinfo", 'case "$*" in *%m*) echo 250;; *) echo 4;; esac')
        self.takes()
        monkeypatch.setenv("PATH", f"{folder}/bin:{os.environ['PATH']}")

    def answer(self, command: str, text: str) -> None:
        path = self.folder / "bin" / command
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def takes(self, then: str = "") -> None:
        """Each job gets the next number from 101 on; `then` is run after that."""
        keep = f"for word; do printf '%s\\0' \"$word\"; done > {self.folder}/told.$n"
        count = f"n=$((101 + $(ls {self.folder} | grep -c '^told')))"
        self.answer("sbatch", f'{count}\n{keep}\n[ "$SLURM_JOB_ID" ] && exit 9\n{then}\necho "$n;here"')

    def refuses(self, said: str) -> None:
        self.answer("sbatch", f"echo '{said}' >&2; exit 1")

    def shows(self, number: int | str, state: str, segment: int = 1, user: str = "me") -> None:
        comment = f"rule_toy_segment_wildcards_demo_{segment:03d}"
        with (self.folder / "queue").open("a") as file:
            file.write(f"{user}|{number}|{state}|None|{DETACHED_JOB_NAME}_1|{comment}|{Path().resolve()}\n")

    @property
    def told(self) -> list[list[str]]:
        paths = sorted(self.folder.glob("told.*"))
        return [path.read_text().rstrip("\0").split("\0") for path in paths]

    def said(self, option: str) -> list[str]:
        """The value of an option for each job."""
        return [next(word for word in words if word.startswith(f"{option}=")).partition("=")[2] for words in self.told]


def job_of_a_chain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    """This process is job 17 of a run of nine segments, in an empty folder."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    targets.keep(toy_run(goal=10**6, segments=9))
    return Slurm(tmp_path, monkeypatch)


def template_in(tmp_path: Path) -> Template:
    """How the jobs of that run are submitted."""
    return Template(4, "toy_segment", str(tmp_path / "logs"), WORDS, f"do --after={BEFORE} it", 100, 1.5, 1)
