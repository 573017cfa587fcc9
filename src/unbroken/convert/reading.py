"""Read a script as its first job does, which finds no restart file; list each line that is not understood."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence

from unbroken.convert.launch import QUIET, Launch, is_resubmission, launch_of
from unbroken.convert.names import TASK_ID, Names, assigned, names_in
from unbroken.convert.resources import Resources
from unbroken.convert.script import Command, Script, Statement

_FILE_TEST = re.compile(r"(! )?(\[+ (! )?|test (! )?)-[edfrs] |(! )?ls ")
_SUBMIT_DIR = re.compile(r"\"?\$\{?(SLURM_SUBMIT_DIR|PWD)\}?/?\"?|\.")


class Reading:
    """Read what the first job of a script does: `launches` are its programs, `unread` the lines not understood."""

    def __init__(
        self, script: Script, statements: list[Statement], arguments: Sequence[str] = (), task: int | None = None
    ) -> None:
        self.script, self.statements, self.resources = script, statements, Resources(script)
        self.names = Names(script, self._known(arguments, task))
        self.modules: list[tuple[str, int]] = []
        self.steps: list[tuple[str, int]] = []
        self.keys: dict[str, tuple[str, int]] = {}
        self.threads: tuple[int, int] | None = None
        self.grompp: list[str] = []
        self.launches: list[Launch] = []
        self.leaves_folder = False
        self._quiet_functions: set[str] = set()
        self.unread = [(each.line, each.written) for each in self.resources.no_key]
        for statement in statements:
            if not self._read(statement):
                self._forget(statement)
                text = script.text[statement.start : statement.end]
                self.unread.append((statement.line, text.splitlines()[0] + (" ..." if "\n" in text else "")))

    def _known(self, arguments: Sequence[str], task: int | None) -> dict[str, str | None]:
        """Return the variables that are known before any job runs; those that the script sets later are empty."""
        job = self.resources
        own = [each for statement in self.statements for each in assigned(statement.commands)]
        return {
            **{name: "" for _, name, word in own if name not in names_in(word.text)},
            **{"SLURM_NTASKS": str(job.tasks), "SLURM_NPROCS": str(job.tasks), "SLURM_SUBMIT_DIR": "."},
            **{"SLURM_NNODES": str(job.nodes), "SLURM_CPUS_PER_TASK": str(job.threads)},
            "SLURM_JOB_NAME": job.value("job-name") or self.script.name,
            **({} if task is None else {TASK_ID: str(task)}),
            **{str(number): word for number, word in enumerate(arguments, 1)},
        }

    def unread_lines(self, unread: Sequence[tuple[int, str]]) -> list[str]:
        """Return the lines that were not looked into, as they are shown."""
        lines = [f"    {self.script.name} line {at}: {text}" for at, text in unread]
        return ["not looked into:", *lines] if lines else []

    def text_of(self, words: Sequence[str]) -> str:
        """Return the text of the Python scripts that a command line names."""
        names = [word for word in words if word.endswith(".py") and self.script.is_file(word)]
        return "\n".join((self.script.folder / name).read_text(errors="replace") for name in names)

    # --- statements: what returns False is not understood ---

    def _read(self, statement: Statement) -> bool:
        """Read a command, some that are joined, or a block."""
        commands, kind = statement.commands, statement.kind
        if kind == "function":
            if all(map(self._is_quiet, commands[1:])):
                self._quiet_functions.add(commands[0].name)
            return commands[0].name in self._quiet_functions
        if len(commands) > 1 and all(map(self._is_quiet, commands)):
            self._forget(statement)
            return True
        if kind:
            return kind == "if" and self._if(commands)
        is_program = launch_of(commands[0]) is not None
        if len(commands) > 1 and self._is_quiet(commands[0]) and not _FILE_TEST.match(commands[0].written):
            return False
        is_joined = all(each.before == "&&" or (is_program and self._is_quiet(each)) for each in commands[1:])
        return is_joined and all(self._command(each) for each in commands)

    def _if(self, commands: list[Command]) -> bool:
        """Read an `if` that looks for a file, and starts the program, or what makes its input, or prints."""
        if not _FILE_TEST.match(commands[0].written) or any("elif" in each.lead for each in commands):
            return False
        return all(
            self._is_quiet(each) or "dmtcp_restart" in each.written or (not each.assignments and self._starts(each))
            for each in commands[1:]
        )

    def _forget(self, statement: Statement) -> None:
        """Take the variables that a statement may set for unknown."""
        for _, name, _ in assigned(statement.commands):
            self.names.values[name] = None

    def _is_quiet(self, command: Command) -> bool:
        """Return True for what prints, waits or ends the script, and writes no file."""
        name = command.name
        is_known = name in {"", *QUIET, *self._quiet_functions} or name.startswith(("[[", "(("))
        writes = any(op[-1] == ">" and target.text != "/dev/null" for op, target in command.redirects)
        is_test = name == "!" or (not name and not command.assignments) or "DMTCP_" in command.written
        return is_test or (is_known and not writes) or is_resubmission(self.script, command)

    # --- commands ---

    def _command(self, command: Command) -> bool:
        readers: dict[str, Callable[[list[str], Command], bool]] = {
            "": self._assign,
            "export": self._export,
            **dict.fromkeys(("module", "ml"), self._module),
            **dict.fromkeys(("source", "."), self._source),
            "conda": self._conda,
            "cd": self._cd,
            **dict.fromkeys(("mkdir", "spack", "ulimit"), self._step),
        }
        if command.name in readers:
            is_read = readers[command.name]([word.text for word in command.words[1:]], command)
            return is_read and not (self.launches and command.name)
        if command.name in self._quiet_functions:
            return True
        return self._starts(command) or self._is_quiet(command)

    def _starts(self, command: Command) -> bool:
        """Read a command that starts the program, or makes its input."""
        words = [word.text for word in command.words]
        if (launch := launch_of(command)) is not None:
            self.launches.append(launch)
            return len(self.launches) == 1
        self.grompp = words if words[1:2] == ["grompp"] else self.grompp
        return words[1:2] == ["grompp"] and not self.launches

    def _assign(self, _words: list[str], command: Command) -> bool:
        for word in command.assignments:
            self.names.assign(word.text)
        return True

    def _export(self, words: list[str], command: Command) -> bool:
        for word in words:
            name = word.partition("=")[0]
            self.names.assign(word)
            text = self.names.values.get(name)
            if text is None or "=" not in word:
                return False
            if name == "OMP_NUM_THREADS" and text.isdecimal():
                self.threads = int(text), command.line
            else:
                self.steps.append((f"export {name}={shlex.quote(text)}", command.line))
        return True

    def _module(self, words: list[str], command: Command) -> bool:
        words = [word for word in words if word not in ("--quiet", "-q", "-s")]
        names = words[1:] if words[:1] in (["load"], ["add"]) else words if command.name == "ml" else []
        if not names or names[0] in ("purge", "use", "restore", "unload", "reset"):
            return self._step(words, command)
        texts = [self.names.text(name) for name in names]
        self.modules += [(text, command.line) for text in texts if text]
        return None not in texts

    def _source(self, words: list[str], command: Command) -> bool:
        path = (self.names.text(words[0]) if words else None) or ""
        if path == "activate":
            return self._conda(words, command)
        if path.endswith("/bin/activate"):
            self.keys["venv"] = path.removesuffix("/bin/activate"), command.line
        elif "GMXRC" in path:
            self.keys["gmxrc"] = str(self.script.folder.resolve() / path), command.line
        return "/bin/activate" in path or "GMXRC" in path or (path[:1] in ("/", "~") and self._step(words, command))

    def _conda(self, words: list[str], command: Command) -> bool:
        """Read `conda activate NAME` and `source activate NAME`."""
        name = (self.names.text(words[1]) if words[:1] == ["activate"] and len(words) == 2 else None) or ""
        self.keys |= {"conda": (name, command.line)} if name else {}
        return bool(name)

    def _cd(self, words: list[str], _command: Command) -> bool:
        is_here = bool(words) and bool(_SUBMIT_DIR.fullmatch(words[0]))
        self.leaves_folder = self.leaves_folder or not (is_here or self.launches)
        return is_here

    def _step(self, words: list[str], command: Command) -> bool:
        """Take a line over as it is: a shell in the job does it before the program."""
        known = [self.names.text(word) or "" for word in words]
        text = shlex.join([command.name, *known]) if "$" in command.written else " ".join([command.name, *words])
        self.steps.append((text, command.line))
        return all(known) and not command.redirects
