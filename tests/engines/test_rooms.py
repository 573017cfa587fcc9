"""An engine is a folder and some pieces with its stem; whatever is missing is named."""

import re
import sys
from pathlib import Path

import pytest
from engines.conformance import engines

from unbroken.config.package_files import root_folder
from unbroken.engines.found import read_checked_runs

ROOT = root_folder()
ENGINES = engines()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_room_has_all_its_pieces(engine):
    pieces = [
        Path("src/unbroken/engines") / engine / "engine.py",
        Path("src/unbroken/engines") / engine / "schema.yaml",
        Path("examples") / engine / "config" / "config.yaml",
        Path("tests/engines") / f"test_{engine}.py",
        Path("docs/engines") / f"{engine}.md",
    ]

    missing = [str(piece) for piece in pieces if not (ROOT / piece).exists()]

    assert missing == []


@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_has_a_rule_and_a_script_of_its_name_or_is_named_in_the_loop(engine):
    rule, script = ROOT / "workflow" / "rules" / f"{engine}.smk", ROOT / "scripts" / f"{engine}_segment.py"
    loop = (ROOT / "workflow" / "rules" / "segments.smk").read_text()
    assert rule.exists() == script.exists() == (f'"{engine}"' not in loop)
    if rule.exists():
        assert f"rule {engine}_segment:" in rule.read_text()
        assert f"scripts/{engine}_segment.py" in rule.read_text()
        assert f"def {engine}_segment(" in script.read_text()


@pytest.mark.parametrize("script", sorted((ROOT / "scripts").glob("*.py")), ids=lambda path: path.stem)
def test_a_script_is_short_and_knows_snakemake_only_where_it_is_run(script):
    text = script.read_text()

    assert len(text.splitlines()) < (60 if script.stem.endswith("segment") else 120)
    assert "snakemake" not in text.partition('if __name__ == "__main__":')[0]


def run_of(engine, base, settings, **keys):
    run = {"engine": engine, "segments": 1, "segment_minutes": 1, "settings": settings, **keys}
    return read_checked_runs({"runs": {"demo": run}}, base)[0]


@pytest.mark.parametrize("engine", ["torch", "tensorflow", "gromacs", "dmtcp"])
def test_a_script_shows_the_commands_that_it_builds(engine, load_script, tmp_path, monkeypatch):
    for name in ("train.py", "topol.tpr", "md.cpt", "dmtcp_launch", "dmtcp_restart"):
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    script = load_script(f"{engine}_segment")
    if engine == "gromacs":
        settings = {"tpr": "topol.tpr", "ranks": 2}
        run = run_of(engine, tmp_path, settings=settings, threads=8, save_minutes=15)
        built = [script.build_command(run, tmp_path / "topol.tpr", tmp_path / "md.cpt", 7128)]
    elif engine == "dmtcp":
        command, images = ["./simulate", "-n", "5"], Path("images")
        run = run_of(engine, tmp_path, settings={"command": command})
        started = [script.program_command(7779, images, saved, command) for saved in ([], ["ckpt_simulate.dmtcp"])]
        built = [script.build_command(run, Path()), *started]
    else:
        training = {"script": "train.py", "args": ["--lr", 0.1], "goal": 3}
        several = {**training, "ranks" if engine == "torch" else "workers": 4}
        built = [
            script.build_command(run_of(engine, tmp_path, training)),
            script.build_command(run_of(engine, tmp_path, several, tasks=2)),
        ]

    text = f"{script.build_command.__doc__}{getattr(script, 'program_command', str).__doc__}"
    shown = [line.strip() for line in text.splitlines() if line.strip().startswith(("python", "gmx", "dmtcp_"))]
    assert len(shown) == len(built)
    for line, command in zip(shown, built, strict=True):
        words = ["python" if word == sys.executable else word for word in command]
        told = " ".join(Path(word).name if word.startswith("/") else word for word in words)
        assert re.fullmatch(".*".join(map(re.escape, line.split("..."))) + "( .*)?", told), told


def test_the_package_never_asks_which_engine_it_is():
    asked = [
        f"{path.name}:{number}"
        for path in (ROOT / "src" / "unbroken").rglob("*.py")
        if path.parent.name != "convert"  # which recognizes an engine by its launch line
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if "engine ==" in line and "== engine" not in line and "run.engine == engine" not in line
    ]

    assert asked == []


def test_no_script_is_named_like_a_library():
    names = {path.stem for path in (ROOT / "scripts").glob("*.py")}

    assert names.isdisjoint({"torch", "tensorflow", "numpy", "keras", "gromacs", "dmtcp", "chain"})
