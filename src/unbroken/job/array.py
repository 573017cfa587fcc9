"""The job array of a run: which of its tasks are in the queue, and how the next array is submitted.

A driver submits the first one, and a task that finds none waiting behind it the next one, by the same function: sbatch
is given the words of the spec, and what was learned since of memory and nodes.  Tasks of `--array=1-N%1` run one at a
time and age in the queue from the submission on [measured, 22.05 and 26.05].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from unbroken.job import submissions
from unbroken.job.needs import nodes_to_avoid, wanted_memory_mb
from unbroken.job.segment_process import is_being_ended
from unbroken.job.spec import JobSpec, path_of
from unbroken.slurm.client import ask, setting
from unbroken.slurm.job import ListedJob, chain_comment
from unbroken.slurm.partitions import own_partition, spare_nodes
from unbroken.slurm.queue import my_jobs
from unbroken.slurm.sbatch import Refusal, kind_of, more_to_exclude, sbatch, without_exclude

# In the name of a log: the number of an array and of its task [man sbatch, filename pattern].
ARRAY_LOG, JOB_LOG = "%A_%a", "%j"
# A killed task costs one task, not a segment.
LEAST_RESERVE, RESERVE_SHARE = 2, 0.1
# So many tasks of all runs of one folder are in the queue at most: others use the site too (MaxJobCount).
MOST_OF_FOLDER = 1000
# If the first task starts in the very first scheduling pass, the others do not begin to age [measured, 22.05: 6 of 6
# arrays; with a begin 0 of 6].
BEGIN = "--begin=now+2"
# Others fill the site's queue too: far less is tried next.
SITE_FULL_DIVISOR = 8


class Answer(Enum):
    """Name the outcome of a submission."""

    DONE = "tasks of the run are in the queue"
    FOUND = "a job of its run is in the queue or running already, taken over"
    FULL = "the queue takes no more jobs now"
    REFUSED = "Slurm refuses the job"  # another try would be refused too
    ENDED = "Slurm ended sbatch with the job around it"
    LATER = "Slurm, or another process, is busy with it"
    SOON = "another process submits it just now"
    LEAVING = "a job of its run is ending; the segment goes on as soon as it has left"
    HELD = "somebody else works on the run, and the segment waits for the end of that"


@dataclass(frozen=True)
class Submitted:
    """Hold the outcome of a submission, its job number if there is one, and one line from sbatch or from us."""

    answer: Answer
    job_id: str = ""
    tasks: int = 0
    said: str = ""

    @property
    def line(self) -> str:
        """Return one line for messages."""
        if not self.job_id:
            return f"{self.answer.value} ({self.said})" if self.said else self.answer.value
        tasks = f"array of {self.tasks} tasks" if self.tasks > 1 else "job"
        line = f"submitted {tasks} {self.job_id}"
        if self.answer in (Answer.FOUND, Answer.LEAVING):
            line = self.answer.value.replace("a job", f"job {self.job_id}", 1)
        return f"{line}; {self.said}" if self.said else line


def newest_log(folder: Path) -> list[str]:
    """Return Slurm's log of the last job of a run, whose logs lie in the folder; none if there is none."""
    logs = []
    for log in folder.glob("slurm-*.log"):
        with suppress(OSError):  # removed in this moment
            logs.append((log.stat().st_mtime_ns, str(log)))
    return [max(logs)[1]] if logs else []


def is_of(job: ListedJob, key: str, base: Path = Path()) -> bool:
    """Return True if a job belongs to a chain of this working directory."""
    return job.chain == key and job.folder.resolve() == base.resolve()


def alive_of(jobs: Sequence[ListedJob], key: str, base: Path = Path()) -> list[ListedJob]:
    """Return the jobs and tasks of a chain that wait or run, without those that hang in their end."""
    return [job for job in jobs if job.is_alive and is_of(job, key, base) and not job.hangs]


def by_chain(jobs: Sequence[ListedJob], base: Path = Path()) -> dict[str, list[ListedJob]]:
    """Return the jobs of each chain of this working directory, by its key."""
    here, found = base.resolve(), dict[str, list[ListedJob]]()
    for job in jobs:
        if (key := job.chain) and job.folder.resolve() == here:
            found.setdefault(key, []).append(job)
    return found


def waiting(jobs: Sequence[ListedJob], key: str, base: Path = Path()) -> list[str]:
    """Return the numbers of a chain's tasks that have not started yet."""
    return [job.job_id for job in jobs if job.is_waiting and is_of(job, key, base)]


def has_waiting(key: str) -> bool | None:
    """Return True if a task of a chain waits; None if Slurm does not answer."""
    jobs = my_jobs()
    return None if jobs is None else bool(waiting(jobs, key))


def cancel_waiting(key: str, base: Path = Path()) -> list[str] | None:
    """Cancel the tasks of a chain that have not started yet; return their numbers, None if Slurm does not answer."""
    jobs = my_jobs()
    return None if jobs is None else cancel(waiting(jobs, key, base))


def cancel(numbers: list[str]) -> list[str] | None:
    """Cancel the arrays of these tasks, or these jobs, as far as they wait: one that has started meanwhile works.

    `scancel --state=PENDING 17_3` cancels all waiting tasks of 17 anyway [measured, 22.05].
    """
    arrays = arrays_of(numbers)
    return numbers if not arrays or ask("scancel", "--state=PENDING", *arrays) is not None else None


def arrays_of(numbers: Iterable[str]) -> list[str]:
    """Return the numbers of the arrays of these tasks, and of jobs that are none, once each."""
    return list(dict.fromkeys(number.partition("_")[0] for number in numbers))


def submit(spec: JobSpec, at_work: str = "") -> Submitted:
    """Submit as many tasks as the run needs, unless some wait already; at once, without a second try.

    They start after all jobs of the run that work now.  `at_work` is the job around this process, whose segment needs
    no other task.  Raise OSError if the notes on the run cannot be read or written.
    """
    # Before Slurm is asked: what another process submits after its answer has a newer number, and ours is refused.
    newest = submissions.newest(spec.key)
    if newest is not None and newest.is_being_filled:
        return Submitted(Answer.SOON)
    jobs = my_jobs()
    if jobs is None:
        return Submitted(Answer.LATER, said="squeue does not answer")
    return submit_knowing(spec, newest, jobs, at_work)


def submit_knowing(
    spec: JobSpec,
    newest: submissions.Submission | None,
    jobs: Sequence[ListedJob],
    at_work: str = "",
    others: Sequence[str] = (),
) -> Submitted:
    """Submit as `submit` does, with the run's newest submission and this user's jobs, which were asked for after it.

    `others` are jobs that are not this user's and work on the run: the tasks start after their ends.
    """
    if found := [number for number in waiting(jobs, spec.key) if number != at_work]:
        return Submitted(Answer.FOUND, found[0].partition("_")[0], len(found))
    wanted = _tasks_wanted(spec, jobs, at_work)
    if wanted < 1:
        return Submitted(Answer.DONE)
    if not others and newest is not None and newest.job_of_other_user() is not None:
        others = [newest.job_id]
    if not path_of(spec.key).exists():  # .snakemake was removed: its tasks would find nothing to do
        spec.write()
    own = submissions.take(spec.key, newest)
    if own is None:
        return Submitted(Answer.SOON)
    done = _submit_what_fits(spec, wanted, [*others, *_behind(jobs, spec.key)], own.renew)
    own.fill(done.job_id, spec.submission.words) if done.job_id else own.give_back()
    return done


def _behind(jobs: Sequence[ListedJob], key: str) -> list[str]:
    """Return the arrays and jobs of a chain whose end the next array waits for.

    The whole arrays: behind one task, it would start together with a task that was requeued meanwhile.  But the task
    alone where another one of its array hangs, which may take for ever.
    """
    alive = alive_of(jobs, key)
    hanging = arrays_of(job.job_id for job in jobs if job.is_leaving and is_of(job, key) and job not in alive)
    arrays = ((job.job_id, job.job_id.partition("_")[0]) for job in alive)
    return list(dict.fromkeys(task if array in hanging else array for task, array in arrays))


def _tasks_wanted(spec: JobSpec, jobs: Sequence[ListedJob], at_work: str = "") -> int:
    """Return how many tasks to submit: the remaining segments and a reserve, within what one run and folder may have.

    None for a run that is over.
    """
    remaining = spec.remaining_segments() - bool(at_work)
    if remaining < 1:
        return 0
    reserve = max(LEAST_RESERVE, math.ceil(RESERVE_SHARE * remaining))
    others = sum(job.is_alive for chain in by_chain(jobs).values() for job in chain)
    most = spec.submission.most_tasks
    return max(1, min(remaining + reserve, most, MOST_OF_FOLDER - others)) if most > 1 else 1


def _submit_what_fits(spec: JobSpec, wanted: int, behind: Sequence[str], renew: Callable[[], None]) -> Submitted:
    """Halve the array until the site takes it, down to a single job; `renew` before each further question."""
    size, (learned, avoided) = wanted, _as_learned(spec)
    while True:
        answer = sbatch(_words(spec, learned, size, behind))
        if answer.job_id:
            where = f"not on {', '.join(avoided)}, where it failed repeatedly" if avoided else ""
            return Submitted(Answer.DONE, answer.job_id, size, where)
        if answer.is_ended or is_being_ended():
            return Submitted(Answer.ENDED, said=answer.said)
        kind = kind_of(answer.said)
        if kind is Refusal.NEVER or kind is Refusal.LATER:
            return Submitted(Answer.REFUSED if kind is Refusal.NEVER else Answer.LATER, said=_one_line(answer.said))
        if size == 1:
            return Submitted(Answer.FULL, said=_one_line(answer.said))
        size = _smaller(size, kind)
        renew()


def _smaller(size: int, kind: Refusal) -> int:
    # The largest index of a task that the site takes is one less.
    most = setting("MaxArraySize") if kind is Refusal.NO_ARRAY else ""
    if most.isdecimal() and int(most) > 1:
        return max(1, min(size // 2, int(most) - 1))
    return max(1, size // (SITE_FULL_DIVISOR if kind is Refusal.SITE_FULL else 2))


def _words(spec: JobSpec, learned: Sequence[str], size: int, behind: Sequence[str]) -> list[str]:
    log = Path(spec.submission.logs) / f"slurm-{ARRAY_LOG if size > 1 else JOB_LOG}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    words = [*learned, f"--comment={chain_comment(spec.key)}", f"--output={log}", "--parsable"]
    words += [f"--array=1-{size}%1"] if size > 1 else []
    words += [f"--dependency=afterany:{':'.join(behind)}"] if behind else [BEGIN] if size > 1 else []
    return [*words, f"--wrap={spec.submission.batch}"]


def _as_learned(spec: JobSpec) -> tuple[list[str], list[str]]:
    """Return sbatch's words with the memory that attempts since the driver's start have shown, and without the nodes.

    These nodes are the second list.
    """
    words, avoided, run = list(spec.submission.words), list[str](), spec.run
    partition = words[words.index("-p") + 1] if "-p" in words[:-1] else own_partition()
    if memory_mb := wanted_memory_mb(spec, partition):
        words += [f"--mem={memory_mb}"]
    if not spec.is_rule and (avoid := nodes_to_avoid(run.name)):
        words, excluded = without_exclude(words)
        avoided = more_to_exclude(excluded, avoid, spare_nodes(partition, run.resources.nodes or run.resources.tasks))
        words += [f"--exclude={','.join([*excluded, *avoided])}"] if excluded or avoided else []
    return words, avoided


def _one_line(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if "rror" in line]
    return lines[0] if lines else " ".join(said.split())
