"""An engine is a folder and some pieces with its stem; whatever is missing is named."""

from pathlib import Path

import pytest
from engines.conformance import engines

from unbroken.config.package_files import root_folder

ROOT = root_folder()
ENGINES = engines()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_room_has_all_its_pieces(engine):
    pieces = [
        Path("workflow/rules") / f"{engine}.smk",
        Path("scripts") / f"{engine}_segment.py",
        Path("src/unbroken/engines") / engine / "engine.py",
        Path("src/unbroken/engines") / engine / "schema.yaml",
        Path("examples") / engine / "config" / "config.yaml",
        Path("tests/engines") / f"test_{engine}.py",
        Path("docs/engines") / f"{engine}.md",
    ]

    missing = [str(piece) for piece in pieces if not (ROOT / piece).exists()]

    assert missing == []


@pytest.mark.parametrize("engine", ENGINES)
def test_rule_script_and_entry_share_one_name(engine):
    rule = (ROOT / "workflow" / "rules" / f"{engine}.smk").read_text()
    script = (ROOT / "scripts" / f"{engine}_segment.py").read_text()

    assert f"rule {engine}_segment:" in rule
    assert f"scripts/{engine}_segment.py" in rule
    assert f"def {engine}_segment(" in script
    assert len(script.splitlines()) < 120
    assert "snakemake" not in script.partition('if __name__ == "__main__":')[0]


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
