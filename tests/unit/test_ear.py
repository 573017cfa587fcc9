"""The step that hears Slurm's signals, as far as it can be seen without Slurm."""

import os
import signal
from pathlib import Path

import pytest
from support.toyrun import is_alive, until

from unbroken.slurm.signal_relay import Ear

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

    with Ear([signal.SIGTERM], lambda number: None, job):
        until(lambda: pid.exists() and pid.read_text())

    until(lambda: not is_alive(int(pid.read_text())))
