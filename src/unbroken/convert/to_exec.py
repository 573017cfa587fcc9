"""Put `unbroken exec` before the long command of a script, which otherwise stays as its user wrote it."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

from unbroken.convert.launch import Launch, all_launches, dmtcp_options, is_resubmission, launch_of
from unbroken.convert.names import assigned, names_in, varies, varying
from unbroken.convert.reading import Reading
from unbroken.convert.script import Command, Script, Statement, parse
from unbroken.engines.gromacs.mdrun_line import OF_SEGMENTS, MdrunLine, words_in

# Where a script looks for what an earlier job has saved: `ls -t restart.*`, `[ -f state.chk ]`, `--resume state.pt`.
_FILE = r"[\w.*{}$-][\w./*{}$-]*"
_LISTED = re.compile(r"\bls (?:-\w+ )*([\w./${}-]*\*[\w./*-]*)")
_TESTED = re.compile(rf"-[efrs] \"?({_FILE})\"?(?= \]|\s*;|$)", re.MULTILINE)
_RESUMED = re.compile(rf"--?(?:resume|restart|ckpt|checkpoint|load|restore)[\w-]*[= ]\"?({_FILE}\.[A-Za-z]\w*)\b")
_KILLED = re.compile(r"\bkill -(?:s )?(?:SIG)?(USR1|USR2|INT|HUP)\b")
# A login shell sets PATH again, and a job without the environment of its submission has another one.
_OWN_PATH = re.compile(r"\A#!.* (?:-\w*l\w*|--login)\b|^#SBATCH.* --export[= ]NONE\b", re.MULTILINE)
_SIGNAL_OPTION = re.compile(r"^#SBATCH(.*?)\s+--signal[= ]\S+(.*)$", re.MULTILINE)
# From where to where the text of the script changes, and into what.
Edit = tuple[int, int, str]


class ExecScript:
    """The script with `unbroken exec` before `launches`, the long commands of one statement.

    `is_chain` if its jobs follow each other without its doing; `keep` are the files that are kept.
    """

    def __init__(self, reading: Reading, launches: list[tuple[int, Launch]], run: str, *, is_chain: bool) -> None:
        self.reading, self.statements, source = reading, reading.statements, reading.script.text
        self.run, self.is_chain, self.at, self._source = run, is_chain, launches[0][0], source
        self.launches = [launch for _, launch in launches]
        self.is_one_of_many = len(all_launches(self.statements)) > len(launches)
        self.statement = self.statements[self.at]
        self.varying = varying(self.statements)
        self.traps = list(_trap_commands(reading.script, self.statements))
        self.copies = [each for each in self.traps if each.name == "cp" and len(_plain(each)) == 2]
        self.engine = next((each for each in self.launches if each.engine), None)
        self.keep = [] if self.engine else self._state()
        edits = list(self._placed())
        changed = [(start, end) for start, end, _ in edits if end > start]
        edits += [edit for edit in self._chain() if not any(start <= edit[0] < end for start, end in changed)]
        self.text = _edited(source, 0, edits)
        at = reading.script.line_at
        lines = {line for start, end in changed for line in range(at(start), at(end) + 1)}
        self.unread = [each for each in reading.unread if each[0] not in lines]

    def _chain(self) -> Iterator[Edit]:
        """Yield what leaves the next job, and the early signal, to `unbroken exec`."""
        for at, statement in enumerate(self.statements):
            for command in statement.commands if not self._asks_exit_code(at) else ():
                if is_resubmission(self.reading.script, command):
                    yield command.words[0].start, command.words[0].start, ": "
        for found in _SIGNAL_OPTION.finditer(self._source):
            rest = found[1] + found[2]
            yield found.start(), found.end(), f"#SBATCH{rest}" if rest.strip() else f"# not needed: {found[0]}"
        if not self.is_chain:
            first = self._source.find("\n") + 1 if self._source.startswith("#!") else 0
            yield first, first, "#SBATCH --requeue --open-mode=append\n"

    def _placed(self) -> Iterator[Edit]:
        """Yield what puts `unbroken exec` before the long command."""
        statement, launch = self.statement, self.launches[0]
        call = f"{self._unbroken()} exec {' '.join(self._options())}"
        is_block = statement.kind not in ("", "function")
        words = [word.text for each in self.launches for word in each.command.words]
        if self.engine:
            command = statement.commands[-1] if is_block else self.engine.command
            start = statement.start if is_block else command.start
            yield start, command.end, f"{call} {self._engine_words(self.engine)}"
            yield from self._end(command)
        elif statement.kind == "function" or not (
            is_block or len(self.launches) > 1 or self.copies or any(varies(word, self.varying) for word in words)
        ):
            outputs = [target for operator, target in launch.command.redirects if operator == ">"]
            if len(outputs) == 1 and not names_in(outputs[0].text):
                call += f" --stdout {outputs[0].text}"
                yield len(self._source[: outputs[0].start].rstrip(" >")), outputs[0].end, ""
            yield from self._before(launch, f"{call} -- ")
            yield from self._end(launch.command)
        else:
            yield from self._wrapped(call)

    def _unbroken(self) -> str:
        """Return the command `unbroken`, by its path if the job may not find it by its name."""
        own = Path(sys.executable).with_name("unbroken")
        return shlex.quote(str(own)) if _OWN_PATH.search(self._source) and own.exists() else "unbroken"

    def _options(self) -> list[str]:
        name = self.run
        if self.reading.resources.array and not self.reading.resources.is_chain:
            name += "_$SLURM_ARRAY_TASK_ID"
        found = ["--name", name, *([] if self.is_chain else ["--requeue"])]
        if self.reading.leaves_folder:
            found += ["--store", '"$SLURM_SUBMIT_DIR/.unbroken"']
        if self.engine:
            return found
        killed = (each for command in self.traps if (each := _KILLED.search(command.written)))
        signal = self.reading.resources.signal or next((each[1] for each in killed), "")
        found += ["--stop-signal", signal] if signal else []
        return [*found, *(["--keep", *(f"'{each}'" for each in self.keep)] if self.keep else [])]

    def _before(self, launch: Launch, text: str) -> Iterator[Edit]:
        start = launch.command.words[launch.first].start
        yield start if launch.timeout is None else launch.timeout, start, text

    def _end(self, command: Command) -> Iterator[Edit]:
        """Yield what lets nothing run after a pause: neither in the background, nor the lines that follow."""
        is_last = self.at + 1 == len(self.statements) or self._asks_exit_code(self.at + 1)
        is_guarded = not is_last and command.after in (";", "\n", "&") and command.before not in ("|", "||")
        end = self._source.index("&", command.end) + 1 if command.after == "&" else command.end
        yield command.end, end, " || exit" if is_guarded else ""

    def _asks_exit_code(self, at: int) -> bool:
        """Return True if a statement decides by the exit code of the program before it."""
        return any("$?" in each.written for each in self.statements[at].commands)

    def _wrapped(self, call: str) -> Iterator[Edit]:
        """Yield a call of a shell with the lines that choose the command: their text is the same in each job."""
        statement, first = self.statement, self.at
        last = statement.commands[-1] if statement.kind else self.launches[-1].command
        needed = names_in(self._source[statement.start : last.end]) & self.varying
        for place in range(self.at - 1, -1, -1):
            earlier = self.statements[place]
            text = self._source[earlier.start : earlier.end]
            # What looks for files has to do so after they were put back; an array cannot be exported.
            if needed & {name for _, name, _ in assigned(earlier.commands)} and re.search(
                r"\bls |-[efrs] |\*|=\(", text
            ):
                first, needed = place, needed | names_in(text) & self.varying
        start, before = self.statements[first].start, self.statements[:first]
        if "<<" in self._source[start : last.end]:
            raise self.reading.script.refused(statement.line, "a here-document in the lines that choose the command")
        region = _edited(
            self._source[start : last.end], start, [edit for each in self.launches for edit in self._inside(each)]
        )
        region = "".join(f"if [ -f {_plain(each)[0]} ]; then {each.written}; fi\n" for each in self.copies) + region
        region += "\nwait" if any(each.command.after == "&" for each in self.launches) and not self._is_single() else ""
        flags = [word.text for each in before if each.commands[0].name == "set" for word in each.commands[0].words[1:]]
        quoted = shlex.quote(f"\n{region}\n") if "'" in region else f"'\n{region}\n'"
        arguments = ['bash "$@"'] if re.search(r"\$\{?[1-9@*#]", region) else []
        shell = " ".join(["bash", *flags, "-c", quoted, *arguments])
        yield start, last.end, f"{_exports(before, region)}{call} -- {shell}"
        yield from self._end(last)

    def _is_single(self) -> bool:
        """Return True if one program runs, and nothing after it in its block."""
        commands, kind = self.statement.commands, self.statement.kind
        following = [commands[commands.index(each.command) + 1 :][:1] for each in self.launches]
        is_last = all(not each or each[0].lead[:1] in (["else"], ["elif"], ["fi"]) for each in following)
        return not kind or (kind == "if" and is_last and all(each.depth < 2 for each in commands))

    def _inside(self, launch: Launch) -> Iterator[Edit]:
        """Yield the edits that make the program, not its parent shell, the process that receives the stop signal."""
        command, is_single = launch.command, self._is_single()
        is_alone = command.before not in ("|", "||", "&&") and command.after in ("\n", ";", "&", "||")
        yield from self._before(launch, "exec " if is_alone and is_single else "")
        if command.after == "&" and self.statement.kind and is_single:
            yield command.end, self._source.index("&", command.end) + 1, ""

    def _engine_words(self, launch: Launch) -> str:
        """Return `--engine` and the command line as it wants it."""
        if launch.engine == "dmtcp":
            words = [*launch.launcher, *dmtcp_options(launch.words)[1]]
            inputs = [word for word in words if self.reading.script.is_file(word)]
            return " ".join(["--engine dmtcp", *(["--inputs", *inputs] if inputs else []), "--", *words])
        assignments = [each for statement in self.statements for each in assigned(statement.commands)]
        resuming = {name for _, name, word in assignments if "-cpi" in word.text}
        line = MdrunLine([word for word in launch.words if not names_in(word) & resuming])
        words = [*launch.launcher, *line.launcher, line.gmx, "mdrun"]
        words += words_in(line.options, OF_SEGMENTS | {"-confout", "-noconfout"})
        return " ".join(["--engine gromacs --", *words])

    def _state(self) -> list[str]:
        """Return the files that statements look for to choose the command, else those that they name."""
        found = [
            each
            for each in self.statements[: self.at + 1]
            if each.kind == "function" or any(one.assignments or launch_of(one) for one in each.commands)
        ]
        text = "\n".join(self._source[each.start : each.end] for each in found)
        listed = [name.replace("*", "{progress}") if name.count("*") == 1 else name for name in _LISTED.findall(text)]
        copied = [_plain(each)[0] for each in self.copies]
        for names in (listed, copied, _TESTED.findall(text), _RESUMED.findall(text)):
            known = [(self.reading.names.text(name) or "").removeprefix("./") for name in names]
            if kept := [name for name in known if name and name[0] not in "/-~" and ".." not in name]:
                return list(dict.fromkeys(kept))
        return []


def _plain(command: Command) -> list[str]:
    return [word.text for word in command.words[1:] if not word.text.startswith("-")]


def _exports(before: list[Statement], region: str) -> str:
    """Return lines by which a shell within the script sees its variables and functions."""
    functions = [each for each in before if each.kind == "function"]
    called = [each for each in functions if re.search(rf"\b{re.escape(each.commands[0].name)}\b", region)]
    texts = " ".join([region, *(command.written for each in called for command in each.commands)])
    used = sorted({name for each in before for _, name, _ in assigned(each.commands)} & names_in(texts))
    lines = [f"export {' '.join(used)}\n"] if used else []
    names = " ".join(each.commands[0].name for each in called)
    return "".join([*lines, *([f"export -f {names}\n"] if names else [])])


def _trap_commands(script: Script, statements: list[Statement]) -> Iterator[Command]:
    """Yield the commands that the script runs when it receives a stop signal."""
    functions = {each.commands[0].name: each for each in statements if each.kind == "function"}
    for command in (each for statement in statements for each in statement.commands if each.name == "trap"):
        body = command.words[1].text.strip("'\"") if len(command.words) > 1 else ""
        inner = parse(Script(script.name, body, script.folder)) if body not in functions else [functions[body]]
        yield from (each for found in inner for each in found.commands)


def _edited(text: str, offset: int, edits: list[Edit]) -> str:
    for start, end, new in sorted(edits, key=lambda edit: edit[:2], reverse=True):
        text = text[: start - offset] + new + text[end - offset :]
    return text
