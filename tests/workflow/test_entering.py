"""The program's environment is entered by the program alone; who watches the clock stays outside."""

import pytest
from support.workdir import WorkDir

# Saves what it finds around itself, and is done.
PROGRAM = """
import json, os
from pathlib import Path

save = Path(os.environ["LONGHAUL_SAVE"])
(save / "found.json").write_text(json.dumps({name: os.environ.get(name) for name in ("FRUIT", "COLOR")}))
(save / "progress.json").write_text(json.dumps({"done": 1, "goal": 1}))
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
    run = {"engine": "torch", "segments": 1, "segment_minutes": 0.5, "settings": settings, "modules": ["no/such/module"]}
    work.configure({"demo": run})

    done = work.snakemake()

    assert done.code == 1
    assert "no/such/module" in work.log("demo", 1)
    assert "must not be reached" not in work.log("demo", 1)


def test_words_to_enter_with_stand_before_the_program(work: WorkDir) -> None:
    found = run_program(work, enter=["env", "FRUIT=ripe pear"])

    assert found == '{"FRUIT": "ripe pear", "COLOR": null}'


@pytest.mark.needs("environment-modules")
def test_modules_come_before_the_words_to_enter_with(work: WorkDir, monkeypatch: pytest.MonkeyPatch) -> None:
    work.write("modulefiles/fruit", "#%Module\nsetenv FRUIT apple\nsetenv COLOR red\n")
    monkeypatch.setenv("MODULEPATH", str(work.root / "modulefiles"))

    found = run_program(work, modules=["fruit"], enter=["env", "COLOR=green"])

    assert found == '{"FRUIT": "apple", "COLOR": "green"}'
