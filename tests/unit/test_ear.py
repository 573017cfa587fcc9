"""The step that hears Slurm's signals, as far as it can be seen without Slurm."""

import os
import signal
import sys
from pathlib import Path

import pytest
from support.toyrun import until

from unbroken.engines.testing.chain import is_alive
from unbroken.engines.testing.kills import children_of
from unbroken.slurm.signal_relay import SignalListener

pytestmark = pytest.mark.process

# A site's srun that is a script around the real one.
WRAPPED = """\
#!/bin/sh
sleep 600 &
echo $! > {pid}
wait
"""


def test_a_wrapped_srun_holds_nobody_up_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    srun, pid = tmp_path / "srun", tmp_path / "pid"
    srun.write_text(WRAPPED.format(pid=pid))
    srun.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    job = {**os.environ, "SLURM_JOB_ID": "1", "SLURMD_NODENAME": "here"}

    with SignalListener([signal.SIGTERM], lambda number: None, job):
        until(lambda: pid.exists() and pid.read_text())

    until(lambda: not is_alive(int(pid.read_text())))


# What srun does with its step: hands standard input on, and ends as it ends.
STEPPING = """\
#!/bin/sh
while [ "$1" != {python} ]; do shift; done
echo $$ > {pid}
"$@"
echo "ended with $?" > {ended}
"""


@pytest.mark.parametrize("hands_on", [True, False], ids=["input", "no input"])
def test_the_step_hears_and_leaves_by_itself_with_us(
    hands_on: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step that is still there when its job's script ends costs the next job three seconds."""
    srun, pid, ended = tmp_path / "srun", tmp_path / "pid", tmp_path / "ended"
    text = STEPPING.format(python=sys.executable, pid=pid, ended=ended)
    srun.write_text(text if hands_on else text.replace('"$@"\necho', '"$@" </dev/null\necho'))
    srun.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    job = {**os.environ, "SLURM_JOB_ID": "1", "SLURMD_NODENAME": "here"}
    heard: list[signal.Signals] = []

    with SignalListener([signal.SIGUSR1], heard.append, job):
        until(lambda: pid.exists() and pid.read_text())
        step = until(lambda: _listener(int(pid.read_text())))
        os.kill(step, signal.SIGUSR1)
        until(lambda: heard)

    assert heard == [signal.SIGUSR1]
    assert ended.exists() is hands_on
    assert not hands_on or ended.read_text() == "ended with 0\n"


def _listener(srun: int) -> int:
    """The step below a process, once it answers the signal; 0 before."""
    for child in children_of(srun):
        status = Path(f"/proc/{child}/status").read_text()
        caught = int(next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")), 16)
        if caught >> (signal.SIGUSR1 - 1) & 1:
            return child
    return 0
