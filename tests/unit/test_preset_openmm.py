"""Which scripts of OpenMM are recognized, what is read of them, and which are refused."""

import re
from pathlib import Path

import pytest
import yaml

from unbroken.cli.init_command import choose
from unbroken.engines.found import read_checked_runs
from unbroken.errors import ConfigError
from unbroken.store.run import RunSpec

SCRIPT = (Path(__file__).parents[1] / "presets/cases/openmm/md.py").read_text()
LOADS = '    simulation.loadCheckpoint("md.chk")\n'
ELSE = "    simulation.minimizeEnergy()\n"
LAST = 'simulation.reporters.append(CheckpointReporter("md.chk", 100))\n'
DCD = 'simulation.reporters.append(DCDReporter("b.dcd", 50))\n'


def run_of(folder: Path, script: str = SCRIPT) -> RunSpec:
    (folder / "md.py").write_text(script)
    (folder / "water.pdb").write_text("END\n")
    (folder / "final.xml").write_text("<State/>\n")
    text = "runs: {a: {engine: command, segments: 2, segment_minutes: 1, settings: {preset: openmm}}}"
    run, *_ = read_checked_runs(yaml.safe_load(text), folder)
    return run


def test_a_script_is_found_and_its_checkpoint_and_inputs_are_read_from_it(tmp_path: Path) -> None:
    run = run_of(tmp_path)

    assert run.settings["start"] == ("python", "md.py")
    assert run.settings["files"] == ("md.chk",)
    assert run.settings["inputs"] == ("md.py", "water.pdb")  # not final.xml, which it writes
    assert choose(tmp_path, []).starter.settings[0].startswith("preset: openmm ")


def test_the_step_is_read_in_a_checkpoint_with_parameters_and_in_a_state(tmp_path: Path) -> None:
    pattern = re.compile(str(run_of(tmp_path).settings["progress_pattern"]).encode())
    head = b"OpenMM Binary Checkpoint\n\0\3\0\0\0CPU\x8b\2\0\0\1\0\0\0\x08\0\0\0Pressure" + b"\x1f" * 8
    checkpoint = head + b"\3\0\0\0" + b"\0" * 8 + (1200).to_bytes(8, "little") + b"\xff" * 100

    assert int.from_bytes(pattern.search(checkpoint)["binary"], "little") == 1200
    assert pattern.search(b'<State openmmVersion="8.6.1" stepCount="3000" time="6">')[2] == b"3000"


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (LOADS, "    pass\n", "it loads no checkpoint"),
        (LOADS, "    simulation.loadCheckpoint(NAME)\n", "with the name in quotes"),
        ("STEPS - simulation.currentStep", "STEPS", "each segment would do all steps again"),
        (
            ELSE,
            ELSE.strip() + "\n",
            "line 34: found 'simulation.minimizeEnergy(': after a restart it would be done again",
        ),
        (LAST, LAST + DCD, "append the CheckpointReporter last"),
        (LAST, "pass\n" + DCD + DCD.replace("50", "50, enforcePeriodicBox=False") + LAST, "three trajectories"),
        (LAST, LAST + "meta = Metadynamics(system)\n", "its bias or weights are not in a checkpoint"),
    ],
)
def test_what_would_not_resume_right_is_refused(tmp_path: Path, old: str, new: str, why: str) -> None:
    assert old in SCRIPT

    with pytest.raises(ConfigError) as error:
        run_of(tmp_path, SCRIPT.replace(old, new))

    assert why in " ".join(error.value.mistakes)
