"""Python programs that start in no time: each is forked from a process that has loaded its libraries already.

What starts is a process of its own (session, working directory, environment, standard streams, signals, an exit through
the interpreter's own end), so that it can be killed like any other; only loading Snakemake (1 to 2 s) or torch (3 s) is
paid once for all. `UNBROKEN_TEST_PREFORK=0` starts every program in the usual way.
"""

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

IS_ON = os.environ.get("UNBROKEN_TEST_PREFORK", "1") != "0"
# What a run of the workflow loads sooner or later; the last one collects Snakemake's plugins.
SNAKEMAKE = (
    "snakemake.cli",
    "snakemake.executors.local",
    "snakemake.report.html_reporter",
    "snakemake_executor_plugin_slurm",
    "charset_normalizer",
    "jinja2",
    "jsonschema",
    "smart_open",
    "unbroken.cli.begin",
    "unbroken.cli.main",
    "unbroken.engines.gromacs.tool",
    "unbroken.engines.gromacs.tpr",
    "unbroken.plan.load",
    "unbroken.report.status",
    "unbroken.engines.training",
    "snakemake.cli:get_argument_parser",
)
ENTRIES = {"snakemake": "snakemake.cli:main", "unbroken": "unbroken.cli.begin:main"}
SERVER = Path(__file__).with_name("prefork_server.py")
TORCH = ("torch", "torch.utils.data", "torch.optim", "torch._dynamo", "numpy")


Output = IO[bytes] | IO[str]


class Forked:
    """A program that the server forked, with the part of subprocess.Popen's interface that tests use."""

    def __init__(self, words: Sequence[str], told: socket.socket) -> None:
        self.args, self._told = list(words), told
        self.returncode: int | None = None
        pid, handles, _, _ = socket.recv_fds(told, 100, 1)
        if not pid:
            told.close()
            raise self._no_server()
        self.pid = int(pid)
        # Names this process even after its number has been given again.
        (self._handle,) = handles

    def poll(self) -> int | None:
        if self.returncode is None:
            self._told.setblocking(False)
            try:
                self.returncode = int(self._line())
            except BlockingIOError:
                return None
            finally:
                self._told.setblocking(True)
            self._told.close()
            os.close(self._handle)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, the negative number of a signal if one ended it; raises subprocess.TimeoutExpired."""
        if self.returncode is None:
            self._told.settimeout(timeout)
            try:
                self._told.recv(1, socket.MSG_PEEK)
            except TimeoutError:
                raise subprocess.TimeoutExpired(self.args, timeout or 0) from None
            self.poll()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            signal.pidfd_send_signal(self._handle, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def __enter__(self) -> "Forked":
        return self

    def __exit__(self, *_: object) -> None:
        self.wait()

    def __del__(self) -> None:
        """A test that failed did not wait for it, which is no fault of the test that runs now."""
        if self.returncode is None and hasattr(self, "_handle"):
            self._told.close()
            os.close(self._handle)

    def _line(self) -> str:
        text = self._told.recv(100).decode()
        if not text:
            raise self._no_server()
        return text

    def _no_server(self) -> RuntimeError:
        return RuntimeError(f"the server that forks programs is gone; it was to start {self.args}")


class Server:
    """A process that has loaded some modules and forks programs; it ends with the process that made it."""

    def __init__(self, modules: Sequence[str]) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # Threads of a library do not live through a fork.
        calm = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        try:
            self._process = subprocess.Popen(
                [sys.executable, str(SERVER), str(theirs.fileno()), *modules],
                env={**os.environ, **calm},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # a Ctrl-C at pytest is not for it
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self._socket = ours

    def close(self) -> None:
        """Ends it; what it has forked works on."""
        self._socket.close()
        self._process.wait()

    def start(self, words: Sequence[str], cwd: Path, env: Mapping[str, str], output: Output) -> Forked:
        """Starts `words` (`module:function` or a script, with its arguments), first of a new session."""
        told, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        request = {"words": list(words), "cwd": str(cwd), "env": dict(env)}
        with theirs:
            try:
                socket.send_fds(self._socket, [json.dumps(request).encode()], [output.fileno(), theirs.fileno()])
            except OSError:
                told.close()
                raise
        return Forked(words, told)


Started = Forked | subprocess.Popen[bytes]
_servers: dict[tuple[int, Sequence[str]], Server] = {}


def server(modules: Sequence[str]) -> Server:
    """The server of this process that has loaded these modules."""
    key = (os.getpid(), tuple(modules))
    if key not in _servers:
        _servers[key] = made = Server(modules)
        atexit.register(made.close)
    return _servers[key]


def start_command(words: Sequence[str], cwd: Path, env: Mapping[str, str], output: Output) -> Started:
    """Starts the command `words`; forked if its first word is the path of snakemake or unbroken."""
    if IS_ON and (entry := ENTRIES.get(Path(words[0]).name)):
        return server(SNAKEMAKE).start([entry, *words], cwd, env, output)
    return _popen(words, cwd, env, output)


def start_script(
    words: Sequence[str], modules: Sequence[str], cwd: Path, env: Mapping[str, str], output: Output
) -> Started:
    """Starts the command `words`, this Python and more; forked with `modules` loaded if the second word is a script."""
    if IS_ON and not words[1].startswith("-"):
        return server(modules).start(words[1:], cwd, env, output)
    return _popen(words, cwd, env, output)


def _popen(words: Sequence[str], cwd: Path, env: Mapping[str, str], output: Output) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        list(words),
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
