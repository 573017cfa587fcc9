"""Any program with restart files of its own: engine command."""

from __future__ import annotations

import itertools
import os
import re
from pathlib import PurePath

from unbroken.config.tasks import PASSED_ON
from unbroken.convert.command_line import taken_apart
from unbroken.convert.draft import Draft, Source, enter, in_words, modules, own_names, variables
from unbroken.convert.seen import HandedOn, Launched, Remark, Step
from unbroken.convert.well_known import stop_file, unnamed_inputs
from unbroken.convert.words import Kind, Part, Word, needs_shell, shell_line, template

# Options by which programs are told what to go on from.
_RESUMES = re.compile(r"--?(?:resume|restart|ckpt|checkpoint|load|restore)[\w-]*")
_OUTPUTS = re.compile(r"--?(?:out|save|run|log|work|exp|result|checkpoint|ckpt|model)[\w-]*")
_FILE_LIKE = re.compile(r"[\w./+-]+\.[A-Za-z]\w{0,7}")
_LAMMPS_RUN = re.compile(r"^\s*run\s+(\d+)(?:\s+upto)?(?:\s+every\s.*)?\s*(?:#.*)?$", re.MULTILINE)
_LAMMPS = re.compile(r"(lmp|lammps)([_-]\w+)*")
_GOAL_OPTIONS = re.compile(r"--?(?:max[-_])?(?:epochs|steps|iterations|iters|num[-_]epochs|num[-_]steps)")


def command_run(source: Source) -> Draft:
    """The run; what only the user can say is asked."""
    draft = Draft("command", f"line {source.start.line}: {source.line.program}")
    modules(source, draft)
    _take_over(source)
    enter(source, draft)
    found = _saved(source)
    _must_be_own(source, found)
    inputs: dict[str, int] = {}
    start = _words(source, source.start, inputs, draft)
    resume = _words(source, source.resume, inputs, draft)
    has_goal = source.first.goal or source.later.goal
    draft.set("start", start, f"line {source.start.line}")
    if resume != start:
        draft.set("resume", resume, f"line {source.resume.line}")
    for name, line in source.first.staged:
        if name not in {each for each, _ in found} and PurePath(name).name not in {each for each, _ in found}:
            inputs.setdefault(name, line)
    for name in unnamed_inputs(source.line.program, [word.text or "" for word in source.start.words]):
        if source.is_file(name):
            inputs.setdefault(source.below(name), source.start.line)
    if inputs:
        draft.set("inputs", list(inputs), f"line {_numbers(inputs)}: files of this folder")
    _files(source, draft, found)
    _goal(source, draft, bool(found), has_goal)
    _stops(source, draft)
    _environment(source, draft)
    draft.suggest("discard: []", "files that the program writes and nobody needs; all others are results")
    return draft


def _take_over(source: Source) -> None:
    """What the script copies when it is told to stop, so that the next job begins with it, is copied before that one.

    `inputs` are links to the user's files: the link is taken away first.  Once for all tasks, so not in `resume`.
    """
    for copy in _handed_on(source):
        source.first.lost = [each for each in source.first.lost if (each.line, each.what) != (copy.line, copy.text)]
        name, target = copy.source, copy.target
        text = f"if [ -f {name} ]; then rm -f {target}; cp -p {name} {target}; fi"
        source.first.prologue.append(Step(text, copy.line))


def _handed_on(source: Source) -> list[HandedOn]:
    """Of what it copies then, what the program reads."""
    words = [word.text or "" for word in source.resume.words]
    read = {*words, *unnamed_inputs(source.line.program, words)}
    return [copy for copy in source.first.handed_on if copy.target in read]


def _must_be_own(source: Source, found: list[tuple[str, int]]) -> None:
    """A restart file that the resume line names has to lie where the program runs."""
    if found or not any(part.text == "file" for word in source.resume.words for part in word.parts):
        return
    looked = next((each for each in source.later.saved if each.line <= source.resume.line), None)
    where = f" ({looked.pattern.source})" if looked else ""
    line = looked.line if looked else source.resume.line
    why = f"its restart files lie in another folder{where}; let the program save in the folder that it runs in"
    raise source.script.refused(line, why)


def _words(source: Source, launched: Launched, inputs: dict[str, int], draft: Draft) -> list[str]:
    """The words of `start` or `resume`; through a shell where one has to expand some."""
    pieces = taken_apart(launched.words)
    words, line = pieces.words, launched.line
    if not words:
        raise source.script.refused(line, "no program stands behind the words that start it")
    if pieces.timeout:
        source.first.drop(line, f"timeout {pieces.timeout}", "unbroken stops the program in time by itself")
    for word in words:
        if (part := word.find(Kind.UNSURE) or word.find(Kind.ARGUMENT)) is not None:
            raise source.script.refused(part.line or line, part.text)
        if word.find(Kind.COUNT):
            raise source.script.refused(line, "a number of the job (restarts, files) stands in the command line")
    _elsewhere(words, line, draft)
    _of_each_job([*words, *pieces.container], line, draft)
    seen = [_placed(source, word, number, inputs, line, draft) for number, word in enumerate(words)]
    seen = [*in_words(source), *seen]
    if launched.stdout is not None:
        source.first.drop(line, f"> {launched.stdout.source}", "what it prints is in logs/<run>/<segment>.log")
    if launched.stdin is None and not needs_shell(seen):
        return [template(word) for word in seen]
    text = f"exec {shell_line(seen)}"
    if launched.stdin is not None:
        text += f" < {shell_line([_placed(source, launched.stdin, 1, inputs, line, draft)])}"
    return ["bash", "-c", text]


def _placed(source: Source, word: Word, number: int, inputs: dict[str, int], line: int, draft: Draft) -> Word:
    """A word as the program has to be told it in a folder of its own, which has links to the inputs."""
    text = word.text
    if text is None or not text:
        return word
    option, mark, value = text.partition("=") if text.startswith("-") else ("", "", text)
    before = f"{option}{mark}"
    if not value or PurePath(value).is_absolute() or value in {name for name, _ in _saved(source)}:
        return word
    staged = {PurePath(name).name: name for name, _ in source.first.staged}
    if source.is_file(value) or value in staged:
        inputs.setdefault(staged.get(value) or source.below(value), line)
        name = PurePath(value).name
        return Word.of(f"{before}./{name}" if number == 0 and ("/" in value) else f"{before}{name}")
    if os.path.isdir(source.folder / value) and ("/" in value or number > 0):
        place = f"/{PurePath(source.below(value))}"
        return Word((Part(Kind.TEXT, before), Part(Kind.PLACEHOLDER, "base"), Part(Kind.TEXT, place)))
    is_path = "/" in value and "://" not in value and not re.search(r"[\s,;=]", value)
    if is_path or (number > 0 and "/" not in value and _FILE_LIKE.fullmatch(value)):
        _missing(source, draft, value, line)
    return word


def _elsewhere(words: list[Word], line: int, draft: Draft) -> None:
    """Folders for outputs that lie elsewhere: restart files are found in the program's own folder alone."""
    for option, word in itertools.pairwise(words):
        is_elsewhere = word.has(Kind.SHELL) or (word.text or "").startswith("/")
        if _OUTPUTS.fullmatch(option.source) and is_elsewhere:
            why = "lies elsewhere: if its restart files or results go there, type a name without a folder into `start`"
            draft.asked.append(Remark(line, f"{option.source} {word.source}", why))


def _of_each_job(words: list[Word], line: int, draft: Draft) -> None:
    for word in words:
        if "SLURM_JOB_ID" in word.source or "SLURM_JOBID" in word.source:
            why = "has another number in each job, so a later one would not find what is saved there; type a name"
            draft.asked.append(Remark(line, word.source, why))


def _missing(source: Source, draft: Draft, name: str, line: int) -> None:
    if any(known == name or name.endswith(known) for known, _ in _saved(source)) or re.fullmatch(r"[\d.e+-]+", name):
        return
    why = "is not here: if the program reads it, put it here and convert again; if it writes it, nothing is to do"
    remark = Remark(line, name, why)
    if remark not in draft.asked:
        draft.asked.append(remark)


def _saved(source: Source) -> list[tuple[str, int]]:
    """The restart files: what the script looks for, if that changes how it starts the program; else what it names."""
    before = [each for each in source.later.saved if each.line <= source.resume.line]
    done = {each.line for each in source.later.finished}
    same = [word.source for word in source.start.words] == [word.source for word in source.resume.words]
    if not same and (found := own_names([each for each in before if each.line not in done])):
        numbered = [each for each in found if "*" in each[0]]
        return numbered[:1] or found[:1]
    return _named(source) or [(copy.source, copy.line) for copy in _handed_on(source)[:1]]


def _named(source: Source) -> list[tuple[str, int]]:
    """`--resume state.pt`"""
    words = [word.text or "" for word in source.resume.words]
    for number, word in enumerate(words):
        option, mark, value = word.partition("=")
        if _RESUMES.fullmatch(option):
            value = value if mark else words[number + 1] if number + 1 < len(words) else ""
            if _FILE_LIKE.fullmatch(value) and not value.startswith("/") and ".." not in value:
                return [(value.removeprefix("./"), source.resume.line)]
    return []


def _files(source: Source, draft: Draft, found: list[tuple[str, int]]) -> None:
    if not found:
        elsewhere = [each for each in source.later.saved if each.line <= source.resume.line]
        where = f"; line {elsewhere[0].line} looks for {elsewhere[0].pattern.source}" if elsewhere else ""
        draft.set("files", [], f"which restart files does it save and go on from, in its own folder{where}", True)
        return
    name, line = found[0]
    last = PurePath(name).name
    if name.count("*") == 1 and not last.startswith("*") and "?" not in name and "*" in last:
        draft.set("files", [name.replace("*", "{progress}")], f"line {line}: `*` is taken for how far it is")
        draft.set("saved_by", "next", "one is complete when the next one has begun")
        return
    is_guess = found == _named(source) or name in {copy.source for copy in _handed_on(source)}
    draft.set("files", [name], f"line {line}" + (": is that what it saves?" if is_guess else ""), is_guess)


def _goal(source: Source, draft: Draft, has_files: bool, told: tuple[float, int, str] | None) -> None:
    """How far it is to go, and what exit code 0 means."""
    finished = own_names(source.later.finished)
    if finished:
        draft.set("finished_file", finished[0][0], f"line {finished[0][1]}: there, the script starts nothing more")
        draft.set("exit_paused", [0], "that file tells whether 0 means done")
    goal = told or _lammps_goal(source)
    paused = source.first.paused
    if paused and not finished and goal is None:
        draft.set("exit_paused", [paused[0]], f"line {paused[1]}: after it the script submits itself again")
    if goal is None:
        if not finished:
            draft.suggest("goal: 1000", "how far it is to go; without it, exit code 0 means done")
            if not paused:
                draft.suggest("exit_paused: [0]", "with a goal, if it ends with 0 before it is there too")
            if not _is_numbered(draft):
                _suggest_progress(draft)
        return
    number, line, why = goal
    draft.set("goal", int(number) if number == int(number) else number, why if not line else f"line {line}: {why}")
    if not _is_numbered(draft):
        _suggest_progress(draft)
    if not finished and has_files:
        draft.set("exit_paused", [0], "the goal tells whether 0 means done")
    elif not finished:
        draft.suggest("exit_paused: [0]", "if it ends with 0 before its goal, with `files` above")


def _is_numbered(draft: Draft) -> bool:
    """True if the names of the restart files say how far they are."""
    return any(entry.key == "files" and "{progress}" in str(entry.value) for entry in draft.settings)


def _suggest_progress(draft: Draft) -> None:
    draft.suggest("progress_file: state.txt", "the restart file that says how far it is; or progress_command")
    draft.suggest("progress_pattern: '^step (\\d+)'", "where in it; or progress_json")


def _lammps_goal(source: Source) -> tuple[float, int, str] | None:
    """The one `run` of LAMMPS's input script."""
    words = [word.text or "" for word in source.line.words]
    if not _LAMMPS.fullmatch(source.line.program):
        return None
    name = next((words[at + 1] for at, word in enumerate(words[:-1]) if word in ("-in", "-i")), "")
    if not name and source.start.stdin is not None:
        name = source.start.stdin.text or ""
    if not source.is_file(name):
        return None
    text = (source.folder / name).read_text(errors="replace")
    found = list(_LAMMPS_RUN.finditer(text))
    if len(found) != 1 or len(re.findall(r"^\s*run\s", text, re.MULTILINE)) != 1:
        return None
    if "upto" not in found[0][0] and re.search(r"\bread_restart\b", text):
        return None  # so many more in each job
    return float(found[0][1]), 0, f"{name} line {text.count(chr(10), 0, found[0].start(1)) + 1}: {found[0][0].strip()}"


def _stops(source: Source, draft: Draft) -> None:
    signal = source.first.stop_signal or source.job.signal
    if source.first.stop_file and (name := source.first.stop_file[0].text):
        draft.set("stop_file", name, f"line {source.first.stop_file[1]}")
        if source.first.stop_text:
            draft.set("stop_text", source.first.stop_text, f"line {source.first.stop_file[1]}")
    elif suggested := stop_file(source.line.program, _input_text(source)):
        draft.suggest(*suggested)
    if signal is None:
        return
    name, line = signal
    is_launched = bool(source.line.launcher) and source.job.tasks > 1
    if is_launched and name not in PASSED_ON:
        source.first.lose(
            line, f"signal {name}", "srun and mpirun end the program on it; USR1 and USR2 reach the tasks"
        )
        return
    draft.set("stop_signal", name, f"line {line}: the script passes it on to the program")


def _input_text(source: Source) -> str:
    """What the program reads on standard input, if that is a file that is here."""
    name = (source.start.stdin.text or "") if source.start.stdin is not None else ""
    return (source.folder / name).read_text(errors="replace") if source.is_file(name) else ""


def _environment(source: Source, draft: Draft) -> None:
    found = {name: each for name, each in variables(source).items() if not each[0].has(Kind.SHELL)}
    words = [word.text or "" for word in source.line.words]
    package = words[words.index("-m") + 1].partition(".")[0] if "-m" in words[:-1] else ""
    if package and any(os.path.exists(source.folder / name) for name in (package, f"{package}.py")):
        found.setdefault("PYTHONPATH", (Word((Part(Kind.PLACEHOLDER, "base"),)), source.start.line))
    if found:
        text = {name: template(word) for name, (word, _) in found.items()}
        draft.set("environment", text, f"line {', '.join(dict.fromkeys(str(line) for _, line in found.values()))}")


def _numbers(inputs: dict[str, int]) -> str:
    return ", ".join(dict.fromkeys(str(line) for line in inputs.values()))
