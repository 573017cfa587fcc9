"""`tools/coverage_table.py` over what coverage.py really writes."""

import json
import subprocess
import sys
from pathlib import Path

import coverage_table
import pytest

pytestmark = pytest.mark.process

MODULES = {
    "unbroken/__init__.py": "",
    "unbroken/store/__init__.py": "",
    "snakemake_executor_plugin_unbroken/__init__.py": "",
    "unbroken/store/whole.py": "A = 1\n",
    "unbroken/store/half.py": "import sys\nif len(sys.argv) > 5:\n    A = 1\nelse:\n    A = 2\n",
    "snakemake_executor_plugin_unbroken/never.py": "A = 1\nB = 2\n",
    "unbroken/cli/__init__.py": "A = 1\n",
}


@pytest.fixture
def measured(tmp_path: Path) -> dict:
    for name, text in MODULES.items():
        (tmp_path / "src" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "src" / name).write_text(text)
    (tmp_path / "program.py").write_text("import unbroken.store.whole, unbroken.store.half\n")
    measure = [sys.executable, "-m", "coverage"]
    environment = {"PYTHONPATH": "src", "PATH": ""}
    words = ["run", "--rcfile=/dev/null", "--branch", "--source=src", "program.py"]
    subprocess.run([*measure, *words], cwd=tmp_path, env=environment, check=True)
    subprocess.run([*measure, "json", "-q"], cwd=tmp_path, env=environment, check=True)
    return json.loads((tmp_path / "coverage.json").read_text())


def test_rooms_are_summed_and_modules_with_little_are_named_the_least_first(measured: dict) -> None:
    said = coverage_table.table(measured).splitlines()

    assert said[2:] == [
        "| executor | 2 | 0 | 0 | 0 | 0.0 % |",
        "| unbroken | 0 | 0 | 0 | 0 | 100.0 % |",
        "| cli | 1 | 0 | 0 | 0 | 0.0 % |",
        "| store | 5 | 4 | 2 | 1 | 71.4 % |",
        "| all | 8 | 4 | 2 | 1 | 50.0 % |",
        "",
        "Below 95 % in store, job, executor: `snakemake_executor_plugin_unbroken/never.py` 0 %, "
        "`unbroken/store/half.py` 67 %. Elsewhere 1 of 7 modules.",
    ]
