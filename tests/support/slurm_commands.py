"""Slurm's commands as shell scripts, for what a real controller cannot be brought to say when it is wanted."""

import os
import shlex
import time
from pathlib import Path

import pytest
from support.toy_spec import toy_spec

from unbroken.job.spec import JobSpec
from unbroken.slurm.job import STARTED, chain_comment

WORDS = ("-p", "short", "--mem", "100", "--exclude=node9", "-D", "/w")


class Slurm:
    """Commands that answer as Slurm does, and keep what sbatch was told."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        (folder / "bin").mkdir()
        (folder / "queue").touch()
        self.answer("squeue", f"cat {folder}/queue")
        self.answer("sinfo", "echo 'short*|1-00:00:00|4|64|250|(null)'")
        self.takes()
        monkeypatch.setenv("PATH", f"{folder}/bin:{os.environ['PATH']}")

    def answer(self, command: str, text: str) -> None:
        path = self.folder / "bin" / command
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def takes(self, then: str = "") -> None:
        """Each submission gets the next number from 101 on; `then` is run after that."""
        keep = f"for word; do printf '%s\\0' \"$word\"; done > {self.folder}/told.$n"
        count = f"n=$((101 + $(ls {self.folder} | grep -c '^told')))"
        self.answer("sbatch", f'{count}\n{keep}\n[ "$SLURM_JOB_ID" ] && exit 9\n{then}\necho "$n;here"')

    def takes_tasks(self, most: int, said: str) -> None:
        """Arrays of more tasks than `most` are refused with these words, single jobs if it is 0; all sizes are kept."""
        size = "n=1; for word; do case $word in --array=1-*) n=${word#--array=1-}; n=${n%\\%1};; esac; done"
        refuse = f"[ $n -le {most} ] || {{ echo {shlex.quote(said)} >&2; exit 1; }}"
        self.answer("sbatch", f"{size}\necho $n >> {self.folder}/sizes\n{refuse}\necho 101")

    def refuses(self, said: str) -> None:
        self.takes_tasks(0, said)

    def shows(self, number: int | str, state: str, key: str = "demo", user: str = "me", folder: str = "") -> None:
        """One more line of squeue: a job, or tasks, of a chain of this folder."""
        node = "node1" if state in STARTED else ""
        where = folder or Path().resolve()
        with (self.folder / "queue").open("a") as file:
            file.write(f"{user}|{node}|{number}|{state}|None|N/A|N/A|N/A|{chain_comment(key)}|{where}\n")

    def ending_for(self, seconds: float) -> None:
        """Let jobs that are COMPLETING have been so for that long."""
        since = int(time.time() - seconds)
        self.answer("squeue", f"sed '/|COMPLETING|/ s,|N/A|N/A|N/A|,|N/A|N/A|{since}|,' {self.folder}/queue")

    @property
    def told(self) -> list[list[str]]:
        paths = sorted(self.folder.glob("told.*"))
        return [path.read_text().rstrip("\0").split("\0") for path in paths]

    @property
    def sizes(self) -> list[int]:
        """How many tasks each submission asked for, with `takes_tasks`."""
        path = self.folder / "sizes"
        return [int(line) for line in path.read_text().splitlines()] if path.exists() else []

    def said(self, option: str) -> list[str]:
        """The value of an option for each submission that has it."""
        found = [[word for word in words if word.startswith(f"{option}=")] for words in self.told]
        return [words[0].partition("=")[2] for words in found if words]


def job_of_a_chain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    """This process is job 17 of a run of nine segments, in an empty folder with its spec."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    chain_spec(tmp_path).write()
    return Slurm(tmp_path, monkeypatch)


def chain_spec(tmp_path: Path, **changes: object) -> JobSpec:
    """The spec of that run; its logs lie in `tmp_path`."""
    submission = {"words": WORDS, "batch": "do it", "logs": str(tmp_path / "logs"), "most_tasks": 100}
    return toy_spec(**{"goal": 10**6, "segments": 9, **submission, **changes})
