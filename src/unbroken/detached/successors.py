"""The next jobs of a run, submitted by sbatch from inside of one of its jobs: no Snakemake has to start for them.

The driver has kept how it submits the jobs of the run.  A job tells sbatch the same, with the names of the segment, the
jobs before, and what was learnt since of memory and nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from unbroken.detached import targets
from unbroken.detached.segment_command import is_being_ended
from unbroken.runs import submissions
from unbroken.runs.attempts import grown_memory, nodes_to_avoid, out_of_memory_kills_of
from unbroken.runs.layout import RunFolder
from unbroken.runs.submissions import Key, Submission
from unbroken.slurm.excluded_nodes import more_to_exclude, without_exclude
from unbroken.slurm.job_comment import comment_of, log_of, run_in
from unbroken.slurm.nodes import numbers_of, own_partition, spare_nodes
from unbroken.slurm.queue import MyJob, job_of_anyone, my_jobs
from unbroken.slurm.refusals import is_no_array, is_queue_full, refusal
from unbroken.slurm.sbatch import sbatch
from unbroken.slurm.this_job import own_job_id

# Changes with the meaning of a field of `Template`; Snakemake submits where it is another one.
VERSION = 2
# Stands in `Template.script` for the numbers of the jobs before.
BEFORE = "@BEFORE@"
DONE = "done"
# How what `submit` says begins where Slurm ended it with the job around it, at its limit or by scancel.
ENDED = "ended with this job"
# How it begins where another try would be refused too.
REFUSED = "Slurm refuses them"
# In the name of a log: the number of an array and of its task [man sbatch, filename pattern].
ARRAY_LOG = "%A_%a"
NO_ROOM = "the queue takes no more jobs now"


@dataclass(frozen=True)
class Template:
    """How the driver submits the jobs of a run.

    `ahead` is how many of them may be out; `words` are sbatch's, those that name a segment among them; `logs` is the
    folder of Slurm's logs, and `script` what a job runs.  The config asks for `mem_mb`, which grows by `memory_growth`,
    and for `nodes`.
    """

    ahead: int
    rule: str
    logs: str
    words: tuple[str, ...]
    script: str
    mem_mb: int
    memory_growth: float
    nodes: int
    is_array: bool = False  # several jobs are submitted as one array, whose tasks follow each other
    version: int = VERSION


def from_json(data: Mapping[str, Any] | None) -> Template | None:
    """What was kept as `vars(template)`; None if it is of another version.

    ValueError, KeyError or TypeError if it is spoilt.
    """
    if data is None or data["version"] != VERSION:
        return None
    return Template(**{**data, "words": tuple(data["words"])})


class NeedsSnakemake(Exception):
    """The jobs are to be submitted as a driver does."""


def submit(run: str, template: Template | None, leaving: str = "", at_work: int = 0) -> str:
    """Submits what may be out of a run and is not; `DONE`, or in one line why not, `NO_ROOM` if it has no job at all.

    `leaving` is the job around us, if its segment is over, and `at_work` its segment, if it is not.  Raises
    NeedsSnakemake, or OSError for the notes of the run.
    """
    if template is None:
        raise NeedsSnakemake
    # Before Slurm is asked: what somebody submits after its answer has a newer number, and ours is not to be had.
    missing = {key: submissions.newest(key) for key in islice(_missing(run, at_work), template.ahead)}
    if any(found is not None and found.is_being_filled for found in missing.values()):
        return f"somebody else submits jobs of {run} just now"
    jobs = my_jobs()
    if jobs is None:
        return "squeue does not answer"
    alive = [job for job in jobs if _is_of(job, run)]
    chain = [job.job_id for job in alive]
    wanted = list(missing.items())[_count(alive, leaving) :]
    size = len(wanted) if template.is_array else 1
    for first in range(0, len(wanted), max(size, 1)):
        if any(_is_of_another_user(found) for _, found in wanted[first : first + size]):
            raise NeedsSnakemake
        keys = list(_taken(wanted[first : first + size]))
        if not keys:
            break
        if said := _submit_together(keys, template, chain):
            for key in keys:
                submissions.drop(key)
            if len(keys) > 1 and (is_queue_full(said) or is_no_array(said)):  # there may be room for some of them
                return submit(run, replace(template, is_array=False), leaving, at_work)
            if is_queue_full(said):  # those that are out submit the rest
                return DONE if chain else NO_ROOM
            return said
        if len(keys) < size:
            break
    return DONE


def _count(alive: Sequence[MyJob], leaving: str) -> int:
    """How many of these jobs do a segment each: where this one is at work, no other one that has started is."""
    own = own_job_id()
    if own != leaving and any(job.job_id == own for job in alive):
        return 1 + len([job for job in alive if job.state == "PENDING"])
    return len([job for job in alive if job.job_id != leaving])


def _missing(run: str, at_work: int) -> Iterator[Key]:
    """The segments that are to be done, the next one first; that at work also if it has just ended: its job is out."""
    now = targets.wanted(run)
    if now is None:
        raise NeedsSnakemake
    if targets.is_over(run):
        return
    places = RunFolder(run)
    numbers = range(1, now.segments + 1)
    yield from (Key(run, number) for number in numbers if number == at_work or not places.record(number).exists())


def _is_of(job: MyJob, run: str) -> bool:
    return job.is_alive and run_in(job.comment) == run and job.folder.resolve() == Path().resolve()


def _is_of_another_user(found: Submission | None) -> bool:
    """True while another user's job is out for the segment; those of ours are in the queue that was asked for."""
    if found is None or not found.is_of_another_user or not found.job_id:
        return False
    job = job_of_anyone(found.job_id)
    return job is not None and job.is_alive and job.folder.resolve() == Path().resolve()


def _taken(wanted: Sequence[tuple[Key, Submission | None]]) -> Iterator[Key]:
    """Those of them, from the first on, that nobody else is quicker to submit."""
    for key, found in wanted:
        if not submissions.take(key, found):
            return
        yield key


def _submit_together(keys: Sequence[Key], template: Template, chain: list[str]) -> str:
    """Puts a job, or an array of jobs, at the end of the chain; empty, or why Slurm did not take it."""
    key = keys[0]
    names = (key.run, f"{key.number:03d}")
    number = ARRAY_LOG if len(keys) > 1 else "%j"
    log = Path(template.logs) / log_of(template.rule, names, number)
    log.parent.mkdir(parents=True, exist_ok=True)
    words = _with(template.words, {"--comment": comment_of(template.rule, names), "--output": str(log)})
    words = _as_learnt(key.run, words, template)
    words += [*dependency(chain), *array(len(keys))]
    answer = sbatch([*words, f"--wrap={template.script.replace(BEFORE, ','.join(chain))}"])
    if not answer.job_id:
        if answer.is_ended or is_being_ended():
            return f"{ENDED}: {answer.said}"
        refused = refusal(answer.said)
        return f"{REFUSED}: {refused}" if refused else answer.said
    for key, job_id in zip(keys, tasks(answer.job_id, len(keys)), strict=True):
        submissions.fill(key, job_id)
        chain.append(job_id)
    return ""


def dependency(chain: Sequence[str]) -> list[str]:
    """Return the words for sbatch that put a job behind all others of its run.

    Behind all, not the last one: if one that waits is cancelled, the next must not start beside the one that runs.
    """
    return [f"--dependency=afterany:{':'.join(chain)}"] if chain else []


def array(count: int) -> list[str]:
    """The words for sbatch that make so many jobs one array: they follow each other, and all age from now on."""
    return [f"--array=1-{count}%1"] if count > 1 else []


def tasks(job_id: str, count: int) -> list[str]:
    """How squeue calls them."""
    return [f"{job_id}_{number}" for number in range(1, count + 1)] if count > 1 else [job_id]


def _as_learnt(run: str, words: list[str], template: Template) -> list[str]:
    """The same, with the memory and without the nodes that attempts since the driver's start have shown."""
    partition = _value(words, "-p") or own_partition()
    if times := out_of_memory_kills_of(run, template.mem_mb):
        most = max(numbers_of(partition, "%m"), default=0)
        words = _with(words, {"--mem": str(grown_memory(template.mem_mb, template.memory_growth, times, most))})
    if avoid := nodes_to_avoid(run):
        words, excluded = without_exclude(words)
        excluded += more_to_exclude(excluded, avoid, spare_nodes(partition, template.nodes))
        words += [f"--exclude={','.join(excluded)}"] if excluded else []
    return words


def _value(words: Sequence[str], option: str) -> str:
    return words[words.index(option) + 1] if option in words[:-1] else ""


def _with(words: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """The words with other values of options that are among them."""
    changed = list(words)
    for option, value in values.items():
        if option in changed[:-1]:
            changed[changed.index(option) + 1] = value
    return changed
