"""Write the config of a script if every line is understood, for the engine that its program has."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath

from unbroken.config.tasks import is_launcher
from unbroken.convert.launch import Launch, dmtcp_options
from unbroken.convert.reading import Reading
from unbroken.convert.resources import Line
from unbroken.engines.gromacs.mdrun_line import OF_SEGMENTS, MdrunLine, options_of, words_in
from unbroken.engines.starter import as_yaml, files_named, seen_in_own_folder
from unbroken.errors import ConfigError

Setting = tuple[str, object, str]

_COUNTS = ("-n", "-np", "-c", "-N", "--ntasks", "--cpus-per-task", "--ntasks-per-node", "--nodes")
# Of segments, and of what one sees while mdrun works.
_LEFT_OUT = OF_SEGMENTS | {"-v", "-confout", "-noconfout"}
_DEFAULTS = {"gmx": "gmx", "ranks": 1, "exact": False}
_GROMPP = {"-f": "mdp", "-c": "structure", "-p": "topology", "-n": "index", "-r": "reference"}


@dataclass(frozen=True)
class Config:
    """The lines of a run and of its settings, and what its user has to know."""

    engine: str
    lines: list[Line]
    settings: list[Line]
    notes: list[str]

    def text(self, run: str, script: str) -> list[str]:
        """Return the config as lines of YAML, each with where it comes from."""
        found = [(f"  {as_yaml(run)}:", script)]
        found += [(f"    {line.key}: {line.value}", line.comment) for line in self.lines]
        found += [("    settings:", ""), *((f"      {line.key}: {line.value}", line.comment) for line in self.settings)]
        return [f"{text:<40}  # {comment}" if comment else text for text, comment in found]


def config_of(reading: Reading, at: int, *, is_numbered: bool) -> Config | None:
    """Return the run of the command in a line; None if a line is not understood, or the program has no engine.

    A command with the number of the array's task is a run in any case: `unbroken exec` takes no second one.
    """
    names, resources = reading.names, reading.resources
    launch = next((each for each in reading.launches if each.command.line == at), None)
    if launch is None or launch.command.before == "|":
        return None
    text = " ".join(launch.words)
    words, launcher = names.words(text), names.words(" ".join(launch.launcher))
    has_pattern = re.search(r"[*?~]", re.sub(r"'[^']*'|\"[^\"]*\"", "", text))  # which the shell expands
    if not words or launcher is None or has_pattern:
        return None
    if not is_numbered and (len(reading.launches) > 1 or reading.unread or "time" not in resources.last):
        return None
    for at in reversed(range(len(launcher))):
        if launcher[at].partition("=")[0] in _COUNTS:
            del launcher[at : at + (1 if "=" in launcher[at] else 2)]
    engine, notes = "command" if is_numbered else launch.engine, list[str]()
    if engine == "command":
        settings = _command(reading, launch, words)
        name = " ".join(words[:2])
        what = f"nothing says from which files {name} resumes, unless it keeps the contract"
        notes = [f"{what}: name them by `files: [...]` below `settings:`", f"done: when {name} exits with 0"]
    elif engine == "gromacs":
        mdrun = MdrunLine(words)
        settings, notes = _gromacs(reading, mdrun, launcher), _under_way(reading, mdrun)
    else:
        settings = _dmtcp(reading, words) if engine else []
    line = f"line {launch.command.line}"
    lines = [Line("engine", engine, f"{line}: {launch.program}"), *resources.lines]
    lines += _environment(reading, launch, engine, launcher)
    shown = [Line(key, as_yaml(value), comment or line) for key, value, comment in settings]
    lines += [each for each in shown if each.key == "save_minutes"]
    return Config(engine, lines, [each for each in shown if each not in lines], notes) if settings else None


def _under_way(reading: Reading, mdrun: MdrunLine) -> list[str]:
    """Return the line that continues what mdrun has begun in this folder."""
    cpt = f"{(mdrun.value('-cpi') or 'state').removesuffix('.cpt')}.cpt"
    line = f"unbroken import RUN --from {reading.script.folder}"
    found = f"a run is under way ({cpt} is here); to continue it, type before the first start: {line}"
    return [found] if reading.script.is_file(cpt) else []


def _environment(reading: Reading, launch: Launch, engine: str, launcher: list[str]) -> list[Line]:
    """Return the lines that say in which environment the program starts, and what starts its tasks."""
    lines, steps, resources = list[Line](), list(reading.steps), reading.resources
    if reading.threads and "cpus-per-task" not in resources.last:
        lines.append(Line("threads", reading.threads[0] or "1", f"line {reading.threads[1]}: OMP_NUM_THREADS"))
    elif reading.threads and reading.threads[0] != str(resources.threads):
        steps.append((f"export OMP_NUM_THREADS={reading.threads[0]}", reading.threads[1]))
    loads = [(f"module load {name}", line) for name, line in reading.modules]
    if any(text.startswith(("module ", "ml ")) for text, _ in steps):
        steps = sorted([*steps, *loads], key=lambda each: each[1])
    elif loads:
        lines.append(Line("modules", as_yaml([name for name, _ in reading.modules]), _lines(loads)))
    lines += [Line(key, as_yaml(value), f"line {at}") for key, (value, at) in reading.keys.items() if key != "gmxrc"]
    enter = ["bash", "-lc", "; ".join([*(text for text, _ in steps), 'exec "$@"']), "bash"] if steps else []
    if resources.tasks > 1 and engine != "gromacs":
        count = ["-n", str(resources.tasks)] if launcher and not launcher[0].endswith("srun") else []
        enter += [*launcher[:1], *count, *launcher[1:]]
    if enter or (resources.tasks > 1 and (engine == "gromacs" or not launcher)):
        lines.append(Line("enter", as_yaml(enter), _lines([*steps, ("", launch.command.line)])))
    return lines


def _lines(found: Sequence[tuple[str, int]]) -> str:
    return f"line {', '.join(str(number) for number in dict.fromkeys(line for _, line in found))}"


def _command(reading: Reading, launch: Launch, words: list[str]) -> list[Setting]:
    """Return the settings of a program that runs in a folder of its own, with links to its inputs."""
    folder = reading.script.folder
    read = [reading.names.text(target.text) or "" for operator, target in launch.command.redirects if operator == "<"]
    files = files_named(folder, [*words, *read])
    start = [word.replace("{", "{{").replace("}", "}}") for word in seen_in_own_folder(folder, words)]
    start = ["bash", "-c", f"exec {shlex.join(start)} < {PurePath(read[0]).name}"] if read else start
    return [("start", start, ""), *([("inputs", files, "files of this folder")] if files else [])]


def _dmtcp(reading: Reading, words: list[str]) -> list[Setting]:
    """Return the settings of what `dmtcp_launch` starts; coordinator and folder of images are the engine's own."""
    (options, program), folder = dmtcp_options(words), reading.script.folder
    found: list[Setting] = [("command", seen_in_own_folder(folder, program), "")]
    found += [("inputs", files, "files of this folder") for files in [files_named(folder, program)] if files]
    seconds = next((int(value) for name, value in options if name in ("-i", "--interval") and value.isdecimal()), 0)
    found += [("save_minutes", round(seconds / 60, 3), f"-i {seconds}")] if seconds else []
    rest = [name for name, value in options if not value and not name.endswith("-coordinator")]
    return [*found, *([("options", rest, "")] if rest else [])]


def _gromacs(reading: Reading, mdrun: MdrunLine, launcher: list[str]) -> list[Setting]:
    """Return the settings of `gmx mdrun`; none if grompp takes the velocities of another simulation (-t)."""
    if mdrun.launcher:  # a wrapper before gmx, for which the engine has no key
        return []
    try:
        said = mdrun.settings()
    except ConfigError:
        return []
    is_made = reading.grompp and not reading.script.is_file(mdrun.tpr)
    made: list[Setting] = _grompp(reading) if is_made else [("tpr", mdrun.tpr, "")]
    found = [*made]
    found += [("save_minutes", float(mdrun.value("-cpt")), "-cpt")] if mdrun.value("-cpt") else []
    found += [("gmxrc", path, f"line {line}") for path, line in [reading.keys.get("gmxrc", ("", 0))] if path]
    if launcher and mdrun.value("-ntmpi") in ("", "0"):
        said["ranks"] = reading.resources.tasks
    if launcher and said["ranks"] != 1 and is_launcher(launcher[0]):
        found += [("launcher", [*launcher, "-n", "{ranks}"], "")]
    found += [(key, value, "") for key, value in said.items() if value != _DEFAULTS.get(key)]
    rest = mdrun.rest(_LEFT_OUT)
    return [*found, *([("options", rest, "")] if rest else [])] if made else []


def _grompp(reading: Reading) -> list[Setting]:
    """Return the settings from which the engine makes the tpr."""
    words = reading.names.words(" ".join(reading.grompp or [])) or ["", "", "-t", ""]
    options = options_of(words[2:])
    values = {"mdp": "grompp.mdp", "structure": "conf.gro", "topology": "topol.top"}
    values |= {key: options[option][0] for option, key in _GROMPP.items() if options.get(option)}
    rest = words_in(options, {*_GROMPP, "-o", "-po", "-pp"})
    found: list[Setting] = [(key, value, "grompp") for key, value in values.items()]
    return [] if "-t" in options else [*found, *([("grompp_options", rest, "grompp")] if rest else [])]
