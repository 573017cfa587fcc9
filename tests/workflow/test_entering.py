"""The program's environment is entered by the program alone; who watches the clock stays outside."""

import pytest
from support.workdir import WorkDir

# Saves what it finds around itself, and is done.
PROGRAM = """
import json, os
from pathlib import Path

save = Path(os.environ["UNBROKEN_SAVE"])
(save / "found.json").write_text(json.dumps({name: os.environ.get(name) for name in ("FRUIT", "COLOR")}))
(save / "progress.json").write_text(json.dumps({"done": int(os.environ["UNBROKEN_GOAL"])}))
"""


def run_program(work: WorkDir, **keys: object) -> str:
    """What the program found."""
    work.write("program.py", PROGRAM)
    settings = {"script": "program.py", "goal": 1}
    work.configure({"demo": {"engine": "torch", "segments": 1, "segment_minutes": 0.5, "settings": settings, **keys}})
    done = work.snakemake()
    assert done.code == 0, done.text
    return work.final("demo")["found.json"].decode()


@pytest.mark.needs("environment-modules")
def test_modules_are_loaded_for_the_program_alone(work: WorkDir, monkeypatch: pytest.MonkeyPatch) -> None:
    work.write("modulefiles/fruit/1.0", "#%Module\nsetenv FRUIT apple\nprepend-path PATH /fruit/bin\n")
    work.write("modulefiles/color", "#%Module\nsetenv COLOR green\n")
    monkeypatch.setenv("MODULEPATH", str(work.root / "modulefiles"))

    found = run_program(work, modules=["fruit/1.0", "color"])

    assert found == '{"FRUIT": "apple", "COLOR": "green"}'


@pytest.mark.needs("environment-modules")
def test_a_module_that_does_not_exist_stops_the_run_before_the_program(work: WorkDir) -> None:
    work.write("program.py", "raise SystemExit('must not be reached')\n")
    settings = {"script": "program.py", "goal": 1}
    keys = {"engine": "torch", "segments": 1, "segment_minutes": 0.5, "settings": settings}
    work.configure({"demo": {**keys, "modules": ["no/such/module"]}})

    done = work.snakemake()

    assert done.code == 1
    assert done.lines("unbroken: ") == [
        "unbroken: demo: 0 of 1, stopped in segment 1 of 1: the program ended with exit code 1: ERROR: Unable to "
        "locate a modulefile for 'no/such/module'; nothing new was saved; read logs/demo/001.2.log; fix the cause, "
        "then start again"
    ]
    log = (work.root / "logs/demo/001.2.log").read_text()
    assert "no/such/module" in log
    assert "must not be reached" not in log


def test_words_to_enter_with_stand_before_the_program(work: WorkDir) -> None:
    found = run_program(work, enter=["env", "FRUIT=ripe pear"])

    assert found == '{"FRUIT": "ripe pear", "COLOR": null}'


@pytest.mark.needs("environment-modules")
def test_modules_come_before_the_words_to_enter_with(work: WorkDir, monkeypatch: pytest.MonkeyPatch) -> None:
    work.write("modulefiles/fruit", "#%Module\nsetenv FRUIT apple\nsetenv COLOR red\n")
    monkeypatch.setenv("MODULEPATH", str(work.root / "modulefiles"))

    found = run_program(work, modules=["fruit"], enter=["env", "COLOR=green"])

    assert found == '{"FRUIT": "apple", "COLOR": "green"}'


def test_a_goal_of_many_digits_reaches_the_program_whole(work: WorkDir) -> None:
    work.write("program.py", PROGRAM.replace('"FRUIT", "COLOR"', '"UNBROKEN_GOAL", "UNBROKEN_RUN"'))
    settings = {"script": "program.py", "goal": 12345678901}
    work.configure({"demo": {"engine": "torch", "segments": 1, "segment_minutes": 0.5, "settings": settings}})

    work.snakemake()

    assert work.final("demo")["found.json"] == b'{"UNBROKEN_GOAL": "12345678901", "UNBROKEN_RUN": "demo"}'
