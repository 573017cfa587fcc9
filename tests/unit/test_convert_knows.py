"""`convert` says only what it knows: everything else is a question mark with the line, and no line is untrue.

Each test marked xfail is a promise of the room that is rebuilt; it must fail until then.
"""

import re
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.histories import PLAIN

from unbroken.convert.bash import Script
from unbroken.convert.config_text import config_text
from unbroken.convert.conversion import convert
from unbroken.errors import ConfigError
from unbroken.runs.attempts import nodes_to_avoid
from unbroken.runs.history import History
from unbroken.runs.layout import RunFolder
from unbroken.runs.segment_end import EndKind


def rebuilt(what: str) -> pytest.MarkDecorator:
    return pytest.mark.xfail(
        strict=True, raises=(AssertionError, ConfigError), reason=f"convert says only what it knows: {what}"
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("md.tpr", "md.cpt", "wrapper", "sim"):
        (tmp_path / name).touch(0o755)
    return tmp_path


def text_of(folder: Path, script: str, name: str = "job.sh") -> str:
    return config_text(convert(Script(name, textwrap.dedent(script).lstrip("\n"), folder), [], "run"))


def run_in(text: str) -> dict[str, Any]:
    (run,) = yaml.safe_load(text)["runs"].values()
    return dict(run)


def asked(text: str, number: int) -> list[str]:
    """The questions that name a line of the script."""
    return [line for line in text.splitlines() if re.search(rf"# \?.*\bline {number}\b", line)]


MDRUN = "gmx mdrun -deffnm md -cpi md.cpt -maxh 0.9"


@rebuilt("a module that may be missing is no must")
def test_a_module_that_may_be_missing_is_a_question_and_no_must(folder: Path) -> None:
    text = text_of(folder, f"#!/bin/bash\n#SBATCH --time=60\nmodule load gromacs/2024 || true\n{MDRUN}\n")

    assert "gromacs/2024" not in run_in(text).get("modules", [])
    assert len(asked(text, 3)) == 1


@rebuilt("the threads that a script exports are the run's threads")
def test_threads_that_a_script_exports_are_the_threads_of_the_run(folder: Path) -> None:
    text = text_of(folder, f"#!/bin/bash\n#SBATCH --time=60\nexport OMP_NUM_THREADS=7\n{MDRUN}\n")

    assert run_in(text).get("threads") == 7 or asked(text, 3)


@rebuilt("a script without --mem says nothing of memory")
def test_memory_that_a_script_does_not_name_is_a_question(folder: Path) -> None:
    text = text_of(folder, f"#!/bin/bash\n#SBATCH --time=60\n{MDRUN}\n")

    assert [line for line in text.splitlines() if "mem_mb" in line and "# ?" in line]


@rebuilt("a wrapper before mdrun hides no mdrun")
def test_a_wrapper_before_mdrun_is_gromacs_or_a_question_and_its_result_no_input(folder: Path) -> None:
    start = "srun --cpu-bind=cores ./wrapper gmx_mpi mdrun -deffnm md -cpi md.cpt"
    text = text_of(folder, f"#!/bin/bash\n#SBATCH --time=60\n#SBATCH --ntasks=4\n{start}\n")

    run = run_in(text)
    assert run["engine"] == "gromacs" or asked(text, 4)
    assert "md.cpt" not in run["settings"].get("inputs", [])


@rebuilt("a file that is missing is no fault of a node")
def test_a_program_that_fails_alike_before_its_first_step_blames_no_node(tmp_path: Path) -> None:
    failed = replace(
        PLAIN,
        kind=EndKind.FAILED,
        to_checkpoint=None,
        progress_to=0.0,
        exit_code=1,
        slurm_job="17",
        slurm_node="node1",
        message="the program ended with exit code 1: cannot open topol.tpr: No such file or directory",
    )
    for token in (1, 2):
        History(RunFolder("demo", tmp_path).history).append(replace(failed, token=token))

    assert nodes_to_avoid("demo", tmp_path) == []


CSH = """
    #!/bin/csh
    #SBATCH --time=01:00:00
    setenv OMP_NUM_THREADS 4
    if (-e md.cpt) then
      gmx mdrun -deffnm md -cpi md.cpt -maxh 0.9
    endif
"""
PBS = f"""
    #!/bin/bash
    #PBS -l walltime=01:00:00
    #PBS -l nodes=1:ppn=8
    cd $PBS_O_WORKDIR
    {MDRUN}
    qsub job.pbs
"""


@rebuilt("csh is named, and no quote or bracket of it is blamed")
def test_a_script_of_csh_is_refused_as_such_by_its_first_line(folder: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        text_of(folder, CSH)

    said = str(caught.value)
    assert re.search(r"line 1: .*csh", said)
    assert "bracket" not in said


@rebuilt("a script of PBS is read or refused as such")
def test_a_script_of_pbs_is_read_or_refused_as_such(folder: Path) -> None:
    try:
        text = text_of(folder, PBS, "job.pbs")
    except ConfigError as error:
        assert re.search(r"line 2: .*PBS", str(error))
        assert "a second program" not in str(error)
    else:
        assert run_in(text)["segment_minutes"] == 60 or asked(text, 2)
        assert run_in(text).get("threads") == 8 or asked(text, 3)


@rebuilt("no function is called that the config does not have")
def test_a_function_of_the_script_is_carried_along_or_a_question(folder: Path) -> None:
    script = """
        #!/bin/bash
        #SBATCH --time=60
        newest_restart() { ls -t restart.* | head -1; }
        ./sim --restart "$(newest_restart)"
    """
    text = text_of(folder, script)

    start = " ".join(map(str, run_in(text)["settings"].get("start", [])))
    assert "newest_restart" not in start or "newest_restart()" in start
    assert asked(text, 4)
