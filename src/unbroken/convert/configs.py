"""Write the config of a script if every line is understood, for the engine that its program has."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from unbroken.config.tasks import is_launcher
from unbroken.convert.launch import Launch, dmtcp_options
from unbroken.convert.reading import Reading
from unbroken.convert.resources import Line
from unbroken.engines.dmtcp.checks import OWN_OPTIONS
from unbroken.engines.gromacs.mdrun_line import OF_SEGMENTS, MdrunLine, options_of, words_in
from unbroken.engines.starter import as_yaml, in_own_folder
from unbroken.errors import ConfigError
from unbroken.presets.preset import presets

_COUNTS = ("-n", "-np", "-c", "-N", "--ntasks", "--cpus-per-task", "--ntasks-per-node", "--nodes")
# Of segments, and of what one sees while mdrun works.
_LEFT_OUT = OF_SEGMENTS | {"-v", "-confout", "-noconfout"}
_DEFAULTS = {"gmx": "gmx", "ranks": 1, "exact": False}
_GROMPP = {"-f": "mdp", "-c": "structure", "-p": "topology", "-n": "index", "-r": "reference"}


@dataclass(frozen=True)
class Config:
    """The lines of a run and of its settings, and what its user has to know; `line` is that of its command."""

    line: str
    lines: list[Line]
    settings: list[Line]
    notes: list[str]

    def text(self, run: str, script: str) -> list[str]:
        """Return the config as lines of YAML, each with where it comes from."""
        found = [(f"  {as_yaml(run)}:", script)]
        found += [(f"    {each.key}: {as_yaml(each.value)}", each.comment or self.line) for each in self.lines]
        found += [("    settings:", "")]
        found += [(f"      {each.key}: {as_yaml(each.value)}", each.comment or self.line) for each in self.settings]
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
    elif engine:
        settings = _dmtcp(reading, words)
    elif known := _preset(reading, launch, words):
        engine, settings = "command", known
    else:
        return None
    line = f"line {launch.command.line}"
    lines = [Line("engine", engine, f"{line}: {launch.program}"), *resources.lines]
    lines += _environment(reading, launch, engine, launcher)
    lines += [each for each in settings if each.key == "save_minutes"]
    return Config(line, lines, [each for each in settings if each not in lines], notes) if settings else None


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
        lines.append(Line("threads", reading.threads[0], f"line {reading.threads[1]}: OMP_NUM_THREADS"))
    elif reading.threads and reading.threads[0] != resources.threads:
        steps.append((f"export OMP_NUM_THREADS={reading.threads[0]}", reading.threads[1]))
    loads = [(f"module load {name}", line) for name, line in reading.modules]
    if any(text.startswith(("module ", "ml ")) for text, _ in steps):
        steps = sorted([*steps, *loads], key=lambda each: each[1])
    elif loads:
        lines.append(Line("modules", [name for name, _ in reading.modules], _lines(loads)))
    lines += [Line(key, value, f"line {at}") for key, (value, at) in reading.keys.items() if key != "gmxrc"]
    enter = ["bash", "-lc", "; ".join([*(text for text, _ in steps), 'exec "$@"']), "bash"] if steps else []
    if resources.tasks > 1 and engine != "gromacs":
        count = ["-n", str(resources.tasks)] if launcher and not launcher[0].endswith("srun") else []
        enter += [*launcher[:1], *count, *launcher[1:]]
    if enter or (resources.tasks > 1 and (engine == "gromacs" or not launcher)):
        lines.append(Line("enter", enter, _lines([*steps, ("", launch.command.line)])))
    return lines


def _lines(found: Sequence[tuple[str, int]]) -> str:
    return f"line {', '.join(str(number) for number in dict.fromkeys(line for _, line in found))}"


def _given(*lines: Line) -> list[Line]:
    """Return the lines that have a value."""
    return [line for line in lines if line.value]


def _command(reading: Reading, launch: Launch, words: list[str]) -> list[Line]:
    """Return the settings of a program that runs in a folder of its own, with links to its inputs."""
    read = [reading.names.text(target.text) or "" for operator, target in launch.command.redirects if operator == "<"]
    seen, files = in_own_folder(reading.script.folder, [*words, *read])
    start = [word.replace("{", "{{").replace("}", "}}") for word in seen[: len(words)]]
    start = ["bash", "-c", f"exec {shlex.join(start)} < {seen[-1]}"] if read else start
    return [Line("start", start), *_given(Line("inputs", files, "files of this folder"))]


def _preset(reading: Reading, launch: Launch, words: list[str]) -> list[Line]:
    """Return the settings of a program that a preset knows; none for another one, or one that reads standard input."""
    folder, redirects = reading.script.folder, launch.command.redirects
    known = [each for each in presets(folder).values() if each.place_of_program(words[:1]) is not None]
    known = [each for each in known if not each.has_input or any(each.is_input(folder, word) for word in words)]
    printed = [reading.names.text(target.text) or "" for operator, target in redirects if operator in (">", ">>")]
    if len(known) != 1 or any(operator == "<" for operator, _ in redirects) or any("/" in name for name in printed):
        return []
    start = [word.replace("{", "{{").replace("}", "}}") for word in words]
    return [Line("preset", known[0].name), Line("start", start), *_given(Line("stdout", "".join(printed[:1])))]


def _dmtcp(reading: Reading, words: list[str]) -> list[Line]:
    """Return the settings of what `dmtcp_launch` starts; coordinator and folder of images are the engine's own."""
    options, program = dmtcp_options(words)
    command, files = in_own_folder(reading.script.folder, program)
    seconds = next((int(value) for name, value in options if name in ("-i", "--interval") and value.isdecimal()), 0)
    rest = [f"{name}={value}".removesuffix("=") for name, value in options if name not in OWN_OPTIONS]
    return _given(
        Line("command", command),
        Line("inputs", files, "files of this folder"),
        Line("save_minutes", round(seconds / 60, 3), f"-i {seconds}"),
        Line("options", rest),
    )


def _gromacs(reading: Reading, mdrun: MdrunLine, launcher: list[str]) -> list[Line]:
    """Return the settings of `gmx mdrun`; none if grompp takes the velocities of another simulation (-t)."""
    if mdrun.launcher:  # a wrapper before gmx, for which the engine has no key
        return []
    try:
        said = mdrun.settings()
    except ConfigError:
        return []
    is_made = reading.grompp and not reading.script.is_file(mdrun.tpr)
    made = _grompp(reading) if is_made else [Line("tpr", mdrun.tpr)]
    if launcher and mdrun.value("-ntmpi") in ("", "0"):
        said["ranks"] = reading.resources.tasks
    has_launcher = launcher and said["ranks"] != 1 and is_launcher(launcher[0])
    gmxrc, line = reading.keys.get("gmxrc", ("", 0))
    found = [
        *made,
        *_given(
            Line("save_minutes", float(mdrun.value("-cpt") or 0), "-cpt"),
            Line("gmxrc", gmxrc, f"line {line}"),
            Line("launcher", [*launcher, "-n", "{ranks}"] if has_launcher else []),
        ),
        *(Line(key, value) for key, value in said.items() if value != _DEFAULTS.get(key)),
        *_given(Line("options", mdrun.rest(_LEFT_OUT))),
    ]
    return found if made else []


def _grompp(reading: Reading) -> list[Line]:
    """Return the settings from which the engine makes the tpr."""
    words = reading.names.words(" ".join(reading.grompp)) or ["", "", "-t", ""]
    options = options_of(words[2:])
    values = {"mdp": "grompp.mdp", "structure": "conf.gro", "topology": "topol.top"}
    values |= {key: options[option][0] for option, key in _GROMPP.items() if options.get(option)}
    found = [Line(key, value, "grompp") for key, value in values.items()]
    rest = Line("grompp_options", words_in(options, {*_GROMPP, "-o", "-po", "-pp"}), "grompp")
    return [] if "-t" in options else [*found, *_given(rest)]
