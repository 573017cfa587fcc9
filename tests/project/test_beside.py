"""Targets of the Makefile side by side, with a stand-in for make."""

import os
import signal
import subprocess
import sys

import pytest
from support.toyrun import until

from longhaul.installed import root_folder

BESIDE = root_folder() / "tools" / "beside.py"
# Each waits until the other has begun; "bad" fails.
MAKE = """\
#!/bin/sh
for target; do :; done
touch "$target.begun"
until [ -e one.begun ] && [ -e two.begun ]; do sleep 0.02; done
echo "$target begins"
[ -z "$STAYS" ] || { trap 'echo "$target leaves"; exit 7' TERM; touch "$target.stays"; while :; do sleep 0.02; done; }
echo "$target ends"
case " $RED " in *" $target "*) exit 2 ;; esac
"""


@pytest.fixture
def start(tmp_path):
    (tmp_path / "make").write_text(MAKE)
    (tmp_path / "make").chmod(0o755)

    def start(**environment):
        there = {**os.environ, "MAKE": str(tmp_path / "make"), **environment}
        return subprocess.Popen(
            [sys.executable, BESIDE, "one", "two"], env=there, cwd=tmp_path, stdout=subprocess.PIPE, text=True
        )

    return start


@pytest.mark.parametrize(("red", "code"), [("", 0), ("one", 2), ("two", 2)])
def test_all_run_at_once_come_to_their_end_and_are_told_whole(start, red, code):
    process = start(RED=red)
    said = process.communicate(timeout=60)[0]

    assert said.splitlines() == ["one begins", "one ends", "two begins", "two ends"]
    assert process.returncode == code


def test_whoever_ends_it_ends_all(start, tmp_path):
    process = start(STAYS="1")
    until(lambda: all((tmp_path / f"{name}.stays").exists() for name in ("one", "two")))
    assert process.stdout.readline() == "one begins\n"
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=60)[0]

    assert said.splitlines() == ["one leaves", "two begins", "two leaves"]
    assert process.returncode == 7
