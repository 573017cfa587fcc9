"""What a program says of its own failure: the one line that explains it, from what real programs print."""

import subprocess
import sys
from pathlib import Path

import pytest

from unbroken.program.error_line import error_in, error_line

PYTHON = """
step 12, loss 0.3
Traceback (most recent call last):
  File "/home/me/train.py", line 40, in <module>
    main()
  File "/home/me/train.py", line 31, in main
    loss = model(batch)
           ^^^^^^^^^^^^
  File "/opt/venv/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1773, in _call_impl
    return forward_call(*args, **kwargs)
RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x3 and 5x6)
"""
CHAINED = (
    PYTHON
    + """
During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/home/me/train.py", line 33, in main
    save()
  File "/home/me/saving.py", line 7, in save
    open(path)
FileNotFoundError: [Errno 2] No such file or directory: 'out/a'
"""
)
RANKS = """
[rank1]: Traceback (most recent call last):
[rank1]:   File "/home/me/ddp.py", line 9, in <module>
[rank1]:     raise ValueError("no data")
[rank1]: ValueError: no data
unbroken: rank 1 ended with exit code 1
"""
GROMACS = """
-------------------------------------------------------
Program:     gmx mdrun, version 2022.5-Debian_2022.5_2
Source file: src/gromacs/mdlib/sim_util.cpp (line 571)

Fatal error:
Step 20: The total potential energy is nan, which is not finite. The LJ and
electrostatic contributions to the energy are 0 and -60, respectively.

For more information and tips for troubleshooting, please check the GROMACS
website at http://www.gromacs.org/Documentation/Errors
-------------------------------------------------------
"""


@pytest.mark.parametrize(
    ("printed", "line"),
    [
        (PYTHON, "RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x3 and 5x6) in train.py, line 31"),
        (CHAINED, "FileNotFoundError: [Errno 2] No such file or directory: 'out/a' in saving.py, line 7"),
        (RANKS, "ValueError: no data in ddp.py, line 9"),
        (
            PYTHON + "wandb: synced\nall done\n",
            "RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x3 and 5x6) in ",
        ),
        (
            '  File "/home/me/train.py", line 3\n    def f(:\n          ^\nSyntaxError: invalid syntax\n',
            "SyntaxError: invalid syntax in train.py, line 3",
        ),
        (GROMACS, "Fatal error: Step 20: The total potential energy is nan, which is not finite. The LJ and electro"),
        (
            "ERROR: Unknown pair style lj/cutt (src/force.cpp:275)\nLast command: pair_style lj/cutt 2.5\n",
            "ERROR: Unknown pair style lj/cutt (src/force.cpp:275)",
        ),
        ("./run.sh: line 2: lmpp: command not found\n", "./run.sh: line 2: lmpp: command not found"),
        ("sh: 1: lmpp: not found\n", "sh: 1: lmpp: not found"),
        ("Error in lm(y ~ x) : object 'y' not found\nExecution halted\n", "Error in lm(y ~ x) : object 'y' not found"),
        ("terminate called\n  what():  std::bad_alloc\nAborted (core dumped)\n", "what():  std::bad_alloc"),
        ("step 1\n\nI give up\n\n", "last line: I give up"),
        ("", ""),
        ("\n  \n", ""),
    ],
)
def test_one_line_explains_it(printed: str, line: str) -> None:
    assert error_in(printed).startswith(line)


@pytest.mark.process
def test_what_really_fails_is_explained(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import json\n\n\ndef load():\n    return json.loads('{')\n\n\nload()\n")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)

    assert error_in(done.stderr).startswith("json.decoder.JSONDecodeError: Expecting property name")
    assert error_in(done.stderr).endswith(" in train.py, line 5")

    done = subprocess.run(["sh", "-c", "no-such-program-here"], capture_output=True, text=True)
    assert error_in(done.stderr).endswith("not found")


def test_it_is_data_and_one_short_line() -> None:
    assert error_in("\x1b[31mERROR: \x1b]0;title\x07red\x1b[0m\x07\x00\r\n") == "ERROR: red"
    assert len(error_in("ERROR: " + "x" * 10_000)) == 240
    assert "\n" not in error_in("ValueError: a\x0bb\x85c\n")


def test_our_own_lines_and_earlier_ones_do_not_count(tmp_path: Path) -> None:
    log = tmp_path / "001.log"
    earlier = "ERROR: of the attempt before\n"
    log.write_text(f"{earlier}unbroken 2026-11-23T20:19:52Z demo segment 1: Fatal error: ours\nmine\n")

    assert error_line(log, len(earlier)) == "last line: mine"
    assert error_line(log, len(earlier), or_last_line=False) == ""
    assert error_line(tmp_path / "none.log", 0) == ""


def test_of_a_log_of_gigabytes_the_end_is_read(tmp_path: Path) -> None:
    log = tmp_path / "001.log"
    with log.open("wb") as file:
        file.truncate(3_000_000_000)
        file.seek(0, 2)
        file.write(b"\nERROR: the end\n")

    assert error_line(log, 0) == "ERROR: the end"
