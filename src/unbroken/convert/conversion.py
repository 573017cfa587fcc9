"""A script as a run: read twice, for a first job and for one that finds what an earlier one has saved."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import TYPE_CHECKING

from unbroken.convert.bash import Script, assigned_in, parse
from unbroken.convert.directives import Directive, directives_of, parted
from unbroken.convert.draft import Draft, Source
from unbroken.convert.expand import TASK_ID, Scope
from unbroken.convert.job import Job, Line, job_of
from unbroken.convert.reader import Reader
from unbroken.convert.seen import Remark, Seen, World
from unbroken.convert.to_command import command_run
from unbroken.convert.to_dmtcp import dmtcp_run, is_dmtcp
from unbroken.convert.to_gromacs import gromacs_run, is_mdrun
from unbroken.convert.to_training import training_run, training_script
from unbroken.convert.words import Kind, Part, Word
from unbroken.engines.found import known_schemas
from unbroken.engines.starter import run_name
from unbroken.errors import ConfigError

if TYPE_CHECKING:
    from tree_sitter import Node

# How many segments a script gets that says nothing of how many jobs there are to be.
_SEGMENTS = 20
# More runs than this are no config that anybody reads.
_MOST_RUNS = 1000


@dataclass(frozen=True)
class Conversion:
    """A run: its lines, and what became of the rest of the script, by its lines."""

    script: str
    run: str
    lines: tuple[Line, ...]
    settings: tuple[Line, ...]
    asked: tuple[Remark, ...]
    lost: tuple[Remark, ...]
    dropped: tuple[Remark, ...]
    # Of an array whose tasks do not follow each other: each task's run, with its lines; above are those of the first.
    tasks: tuple[Conversion, ...] = ()


@dataclass(frozen=True)
class Chain:
    """How many jobs follow each other, and what says so."""

    segments: int
    comment: str
    is_asked: bool = False


def convert(
    script: Script, arguments: Sequence[str] = (), name: str = "", keys: Collection[str] | None = None
) -> Conversion:
    """The run that a script comes to; ConfigError by line where it cannot be one.

    `keys` are those of a run that may be used, all that this release knows if none are given.
    """
    keys = known_schemas().run.keys if keys is None else keys
    root = parse(script)
    found, late = directives_of(script)
    first = _read(script, root, found, arguments, World.FRESH)
    if not first.programs and first.submitted:
        return _of_submitter(script, first, name, keys)
    if (ids := _side_by_side(job_of(found, Seen(), script.name))) is not None:
        return _of_tasks(script, root, found, arguments, name, keys, ids)
    later = _read(script, root, found, arguments, World.RESUMED)
    for number in late:
        first.lose(number, script.lines[number - 1], "Slurm does not read it, because a command stands before it")
    return _converted(script, found, first, later, name, None, keys)


def _of_tasks(
    script: Script,
    root: Node,
    found: Sequence[Directive],
    arguments: Sequence[str],
    name: str,
    keys: Collection[str],
    ids: Sequence[int],
) -> Conversion:
    """A run for each task of an array whose tasks do not follow each other."""
    line = next(each.line for each in found if each.name == "array")
    if len(ids) > _MOST_RUNS:
        raise script.refused(line, f"an array of {len(ids)} tasks; write a table of runs (runs_table)")
    alone = [each for each in found if each.name != "array"]
    tasks = []
    for number in ids:
        both = [_read(script, root, alone, arguments, world, number) for world in World]
        each = _converted(script, alone, both[0], both[1], name, None, keys)
        tasks.append(replace(each, run=f"{each.run}_{number}"))
    if len(tasks) > 1 and tasks[0].settings == tasks[1].settings:
        raise script.refused(line, "the tasks of this array differ in nothing that is known before they run")
    return replace(tasks[0], tasks=tuple(tasks))


def _converted(
    script: Script,
    found: Sequence[Directive],
    first: Seen,
    later: Seen,
    name: str,
    chain: Chain | None,
    keys: Collection[str],
) -> Conversion:
    if not first.programs:
        if not later.programs:
            raise ConfigError([f"{script.name}: no program is started; convert takes a script for sbatch"])
        first.programs += later.programs
    job = job_of(found, first, script.name)
    run = run_name(name or job.name, "") or run_name(PurePath(script.name).stem, "run")
    source = Source(script, job, first, later, run, keys)
    _follow_up(source)
    draft = _draft(source)
    chain = chain or _chain(source)
    if chain.is_asked:
        draft.asked.insert(0, Remark(0, "segments", chain.comment))
    lines = [
        Line("engine", draft.engine, draft.why),
        Line("segments", str(chain.segments), f"? {chain.comment}" if chain.is_asked else chain.comment),
        *job.lines,
        *draft.lines,
    ]
    asked = [
        *draft.asked,
        *(
            Remark(0, each.key or each.value.partition(":")[0], each.comment.removeprefix("? "))
            for each in (*job.lines, *draft.settings)
            if each.is_asked
        ),
    ]
    return Conversion(
        script.name,
        run,
        tuple(lines),
        tuple(draft.settings),
        tuple(dict.fromkeys(asked)),
        _sorted(first.lost),
        _sorted(first.dropped),
    )


def _draft(source: Source) -> Draft:
    if is_mdrun(source):
        return gromacs_run(source)
    if is_dmtcp(source):
        return dmtcp_run(source)
    if (training := training_script(source)) is not None:
        return training_run(source, *training)
    return command_run(source)


def _read(
    script: Script,
    root: Node,
    found: Sequence[Directive],
    arguments: Sequence[str],
    world: World,
    task: int | None = None,
) -> Seen:
    seen = Seen()
    job = job_of(found, Seen(), script.name)
    known = _known(job) | ({} if task is None else {TASK_ID: Word.of(str(task))})
    scope = Scope(script, world, seen, known, tuple(map(Word.of, arguments)), _following(job))
    scope.assigned = assigned_in(root)
    Reader(scope).read(root)
    return seen


def _side_by_side(job: Job) -> Sequence[int] | None:
    """The numbers of an array whose tasks may run at the same time; None where they follow each other, or are none."""
    return job.array[0] if job.array and len(job.array[0]) > 1 and job.array[1] != 1 else None


def _following(job: Job) -> tuple[int, ...]:
    """The numbers of an array whose tasks run one after the other."""
    return tuple(job.array[0]) if job.array and job.array[1] == 1 else ()


def _known(job: Job) -> dict[str, Word]:
    """What Slurm tells a script of its job."""

    def placeholder(name: str) -> Word:
        return Word((Part(Kind.PLACEHOLDER, name),))

    known = dict.fromkeys(("SLURM_NTASKS", "SLURM_NPROCS"), placeholder("tasks"))
    known |= dict.fromkeys(("SLURM_CPUS_PER_TASK", "OMP_NUM_THREADS"), placeholder("threads"))
    known |= dict.fromkeys(("SLURM_SUBMIT_DIR", "PWD"), placeholder("base"))
    known |= dict.fromkeys(("SLURM_NNODES", "SLURM_JOB_NUM_NODES"), Word.of(str(job.nodes or 1)))
    if job.gpus:
        known["SLURM_GPUS"] = Word.of(str(job.gpus))
        known["SLURM_GPUS_ON_NODE"] = Word.of(str(job.gpus // (job.nodes or 1)))
    known["SLURM_JOB_NAME"] = Word.of(job.name) if job.name else placeholder("run")
    known["SLURM_ARRAY_JOB_ID"] = placeholder("run")
    if job.is_requeued:  # the number stays the same in all its jobs
        known |= dict.fromkeys(("SLURM_JOB_ID", "SLURM_JOBID"), placeholder("run"))
    if job.nodes and job.tasks % job.nodes == 0:
        known["SLURM_NTASKS_PER_NODE"] = Word.of(str(job.tasks // job.nodes))
    return known


def _follow_up(source: Source) -> None:
    """Notes of a script that submits itself again."""
    for words, line in source.first.submitted:
        source.first.resubmitted.append(abs(line))
        text = " ".join(["sbatch", *(word.source for word in words)])
        source.first.drop(abs(line), text, "unbroken submits the next segment by itself")


def _chain(source: Source) -> Chain:
    job, line = source.job, min(source.first.resubmitted, default=0)
    if job.array is not None and len(job.array[0]) > 1:
        ids, _, at = job.array
        return Chain(len(ids), f"line {at}: an array of {len(ids)} tasks, one at a time")
    if line:
        return Chain(_SEGMENTS, f"line {line} submits it again and again: at most how often?", is_asked=True)
    if job.is_requeued:
        return Chain(_SEGMENTS, "a requeued job knows no end: at most how many segments?", is_asked=True)
    return Chain(_SEGMENTS, "the script is one job: at most how many segments?", is_asked=True)


def _of_submitter(script: Script, seen: Seen, name: str, keys: Collection[str]) -> Conversion:
    """A script for the login node, which submits the jobs of a chain: the job is the run, the loop its segments."""
    jobs = [_parts(words) for words, _ in seen.submitted]
    names = {job for _, job, _ in jobs}
    line = abs(seen.submitted[0][1])
    if len(names) > 1:
        raise script.refused(line, f"it submits {', '.join(sorted(names))}: convert each of them by itself")
    found, job, arguments = jobs[0]
    if not (script.folder / job).is_file():
        raise script.refused(line, f"it submits {job or 'no script'}, which is not in this folder")
    inner = Script.read(script.folder / job, script.folder)
    own, _ = directives_of(inner)
    typed = [replace(each, line=0, written=f"{script.name} line {line}: {each.written}") for each in found]
    typed = [each for each in typed if each.name != "job-name"]
    root = parse(inner)
    together = [*own, *typed]
    first = _read(inner, root, together, arguments, World.FRESH)
    later = _read(inner, root, together, arguments, World.RESUMED)
    is_endless = any(at < 0 for _, at in seen.submitted)
    count = len(seen.submitted)
    chain = Chain(count, f"{script.name} line {line}: it submits {count} jobs that follow each other")
    if is_endless:
        chain = Chain(_SEGMENTS, f"{script.name} line {line}: a loop; at most how many segments?", is_asked=True)
    return _converted(inner, together, first, later, name or PurePath(script.name).stem, chain, keys)


def _parts(words: Sequence[Word]) -> tuple[list[Directive], str, list[str]]:
    """What `sbatch` is given: its options, the script, and the script's arguments."""
    texts = [word.source for word in words]
    found, rest = parted(texts, 0)
    return found, rest[0] if rest else "", rest[1:]


def _sorted(remarks: Sequence[Remark]) -> tuple[Remark, ...]:
    return tuple(sorted(remarks, key=lambda remark: remark.line))


def remarks_text(remarks: Sequence[Remark], script: str) -> Iterator[str]:
    """A line for each, with its place in the script."""
    for remark in remarks:
        where = f"{script} line {remark.line}: " if remark.line else ""
        what = " ".join(remark.what.split())
        yield f"{where}`{what}`: {remark.why}"
