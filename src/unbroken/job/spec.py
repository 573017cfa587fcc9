"""`spec.json`: all that the jobs of a run on Slurm need to know; written at each start, read by each job that starts.

It lies in the chain's folder, `.snakemake/unbroken/chains/<run>`.  A later start writes it again, so a task that has
waited in the queue for days works by the newest settings, and a job that ends asks it for the newest goal.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from unbroken.errors import ConfigError
from unbroken.job import rule_state
from unbroken.job.attempt import Assignment
from unbroken.store.history import EndKind
from unbroken.store.layout import CHAINS, Format, RunFolder, known_fields
from unbroken.store.record import read_record
from unbroken.store.run import CopySettings, IdentityKeys, RunSpec

FORMAT = Format(1, "version")
# In Snakemake's words for a segment of ours: the number to be replaced.
_SEGMENT = re.compile(r"^(\w+:.*\bsegment=)\d+")


@dataclass(frozen=True)
class RuleJob:
    """Describe how a job on Slurm runs the job of the rule.

    It runs the `script`, with the arguments that Snakemake would pass; or Snakemake's own `command` where only
    Snakemake can run it, with `segment=<number>` and `--attempt <number>` among its words.  `latency_seconds` is how
    long a file may need until another machine sees it.  A user's own rule also has its `outputs`, and `memory_mb`, its
    mem_mb at the attempts 1, 2, ...
    """

    name: str
    script: str = ""
    command: tuple[str, ...] = ()
    threads: int = 1
    resources: Mapping[str, Any] = field(default_factory=dict)
    latency_seconds: float = 0.0
    outputs: tuple[str, ...] = ()
    memory_mb: tuple[int, ...] = ()

    def memory_after(self, kills: int) -> int:
        """Return what a user's rule asks for after it ran out of memory so often; 0 if it does not say."""
        return self.memory_mb[min(kills, len(self.memory_mb) - 1)] if self.memory_mb else 0


@dataclass(frozen=True)
class SubmitOptions:
    """Hold how to submit jobs of the run: sbatch's `words`, the command in them (`batch`), the folder of their `logs`.

    At most `most_tasks` of them are in the queue at a time.  A job that finds none behind it submits the next ones if
    it `refills`; it does not where Snakemake asks for each.
    """

    words: tuple[str, ...] = ()
    batch: str = ""
    logs: str = ""
    most_tasks: int = 1
    refills: bool = True


@dataclass(frozen=True)
class JobSpec:
    """Describe the work of a run's jobs: segments up to `last_segment`, each tried again at most `retries` times.

    `start` names the start of snakemake that wrote it: attempts of earlier ones do not count.  `key` names the chain;
    it is the run's name, but for a rule of the user's own, whose jobs know their run only when they have begun.
    """

    key: str
    run: RunSpec
    keys: IdentityKeys | None
    rule_job: RuleJob
    submission: SubmitOptions
    last_segment: int
    retries: int
    start: str

    @property
    def is_rule(self) -> bool:
        """Return True for the chain of a rule of the user's own."""
        return self.keys is None

    @property
    def has_begun(self) -> bool:
        """Return False for a user's own rule as long as none of its jobs has begun a run."""
        return not self.is_rule or rule_state.read_state(self.key).note is not None

    @property
    def name(self) -> str:
        """Return what a line calls it."""
        return f"rule {self.rule_job.name}" if self.is_rule else self.run.name

    @property
    def assignment(self) -> Assignment:
        """Return what the plan gives to every segment of the run."""
        if self.keys is None:
            raise ValueError(self.key)
        return Assignment(self.run, self.keys)

    @property
    def folder(self) -> RunFolder:
        """Return the map of the run's files."""
        return rule_state.read_state(self.key).folder(self.key) if self.is_rule else RunFolder(self.run.name)

    def missing_segments(self) -> Iterator[int]:
        """Yield the segments that are wanted and have no record, in order.

        A folder is listed, not each file asked for: on NFS a file that was missing a moment ago may stay missing for a
        client for a minute, while opening a folder asks the server.
        """
        try:
            names = set(os.listdir(self.folder.segments))
        except FileNotFoundError:
            names = set()
        for number in range(1, self.last_segment + 1):
            if self.folder.record(number).name not in names:
                yield number

    def next_segment(self) -> int | None:
        """Return the next segment to be done; None for a run that is over.

        It is over when all segments that are wanted have a record, or the newest record says that the goal is reached
        that is set now.
        """
        if self.is_rule:
            return None if rule_state.is_done(self.key) else rule_state.read_state(self.key).segment
        missing = next(self.missing_segments(), None)
        record = read_record(self.folder.record(missing - 1)) if missing is not None and missing > 1 else None
        is_finished = record is not None and record.kind is EndKind.FINISHED
        if is_finished and record is not None and self.run.is_content_with(record.progress):
            return None
        return missing

    def remaining_segments(self) -> int:
        """Return how many segments are still to be done; 0 for a run that is over."""
        if self.is_over():
            return 0
        if self.is_rule:
            return max(1, self.last_segment - rule_state.read_state(self.key).pauses)
        return len(list(self.missing_segments()))

    def is_over(self) -> bool:
        """Return True if nothing is left to be done."""
        return self.next_segment() is None

    def write(self, base: Path = Path()) -> Path:
        """Write the spec in one step; return its path relative to `base`.

        Raise FormatError if a spec of a newer unbroken is there.
        """
        path = path_of(self.key)
        refuse_newer(self.key, base)
        (base / path).parent.mkdir(parents=True, exist_ok=True)
        run = {**self.run.keys(), "copies": self.run.copies and asdict(self.run.copies)}
        FORMAT.write(base / path, {FORMAT.key: FORMAT.newest, **asdict(self), "run": run}, indent=None)
        return path


@dataclass(frozen=True)
class ChainJob:
    """A job that does a segment; `spec` is what it read when it started."""

    spec: JobSpec
    job_id: str

    @property
    def folder(self) -> RunFolder:
        """Return the map of the run's files."""
        return self.spec.folder

    @property
    def key(self) -> str:
        """Return the name of the chain."""
        return self.spec.key

    def now(self) -> JobSpec:
        """Return the spec as the newest start wants it: the run may have been extended meanwhile.

        The same spec if that cannot be read now.
        """
        with suppress(ConfigError, OSError):
            return read(path_of(self.key))
        return self.spec

    def command_for(self, segment: int, attempt: int) -> list[str]:
        """Return the command that does a segment, or that runs the job of a user's own rule."""
        if self.spec.rule_job.script:
            script = [sys.executable, "-m", "unbroken.job.segment_script"]
            return [*script, str(path_of(self.key)), str(segment), str(attempt)]
        words = list(self.spec.rule_job.command)
        if not self.spec.is_rule:
            words = [_SEGMENT.sub(rf"\g<1>{segment:03d}", word) for word in words]
        if "--attempt" in words:
            words[words.index("--attempt") + 1] = str(attempt)
        return words


def path_of(key: str) -> Path:
    """Return the path of a chain's spec."""
    return CHAINS / key / "spec.json"


def refuse_newer(key: str, base: Path = Path()) -> None:
    """Raise FormatError if another unbroken wrote the spec; a corrupt one is written again."""
    with suppress(ConfigError, OSError):
        read(base / path_of(key))


def read(path: Path) -> JobSpec:
    """Read the spec at `path`; raise ConfigError with what to type if it is missing or corrupt.

    Raise FormatError if another unbroken wrote it.
    """
    try:
        data = FORMAT.read(path)
        del data[FORMAT.key]
        return _parsed(data)
    except FileNotFoundError as error:
        raise ConfigError([f"{path}: missing; start snakemake again"]) from error
    except OSError as error:
        raise ConfigError([f"{path}: {error.strerror}; when it can be read, start snakemake again"]) from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ConfigError([f"{path}: corrupt ({error!r}); start snakemake again"]) from error


def _parsed(data: Mapping[str, Any]) -> JobSpec:
    run, keys = data["run"], data["keys"]
    copies = CopySettings(**run["copies"]) if run["copies"] else None
    parts = {
        "run": RunSpec.of({**_with_tuples(run), "copies": copies}),
        "keys": keys and IdentityKeys(**_with_tuples(keys)),
        "rule_job": RuleJob(**known_fields(RuleJob, _with_tuples(data["rule_job"]))),
        "submission": SubmitOptions(**_with_tuples(data["submission"])),
    }
    return JobSpec(**{**data, **parts})


def _with_tuples(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a part as they were before JSON made lists of its tuples."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in data.items()}
