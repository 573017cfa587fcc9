"""`tools/gpu.py`: what it says where there is no GPU, and its parts on the CPU, from a wheel of this very tree."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import gpu
import pytest
from support.toyrun import until

from unbroken.engines.testing.chain import is_alive

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--quiet", "--no-index"]
    subprocess.run([*build, "--wheel-dir", str(folder), str(ROOT)], check=True)
    return folder


def run(wheels: Path, base: Path, *words: str) -> tuple[int, str, dict]:
    answers = base / "gpu.json"
    command = [sys.executable, str(ROOT / "tools" / "gpu.py"), f"--wheels={wheels}", f"--json={answers}", *words]
    hidden = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, cwd=base, env=hidden, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr, json.loads(answers.read_text()) if answers.exists() else {}


@pytest.mark.slow
def test_without_a_gpu_nothing_is_tested_and_that_is_said(wheels: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="missing: torch (pip install torch)")

    code, said, found = run(wheels, tmp_path, "snapshots", "save-1gb")

    assert code == 2
    assert "NOTHING WAS TESTED ON A GPU" in said
    assert found["machine"]["gpu"] == ""
    assert {part["outcome"] for part in found["parts"].values()} == {gpu.NOT_RUN}
    assert "NO GPU" in found["parts"]["snapshots"]["why"]
    assert found["parts"]["pieces"]["why"] == "not asked for"


@pytest.mark.slow
def test_parts_are_tried_on_the_cpu_and_one_that_fails_hides_no_other(
    wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch", reason="missing: torch (pip install torch)")
    for name in ("snapshots", "segments"):  # their limits are for machines with a GPU
        monkeypatch.setitem(gpu.PARTS, name, replace(gpu.PARTS[name], seconds=800))
    answers = tmp_path / "gpu.json"
    words = [f"--wheels={wheels}", f"--json={answers}", "--minutes=60", "--device=cpu", "snapshots", "segments"]

    code = gpu.main(words)

    found = json.loads(answers.read_text())
    assert code == 1
    assert found["parts"]["snapshots"]["outcome"] == gpu.FAILED  # all its tests look into a GPU, and are skipped
    assert "skipped: " in found["parts"]["snapshots"]["why"]
    assert found["parts"]["segments"]["outcome"] == gpu.PASSED, found["parts"]["segments"]["log"]
    assert list(found["parts"]["segments"]["tests"].values()) == ["passed"]


@pytest.mark.slow
def test_a_part_that_takes_too_long_ends_with_all_its_processes(
    wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = "import os, time; os.fork(); open(f'{os.environ[\"TMPDIR\"]}.{os.getpid()}', 'w'); time.sleep(1000)"
    monkeypatch.setitem(gpu.PARTS, "long", gpu.Part("waits", 2, ("-c", script)))
    monkeypatch.setattr(gpu, "GENTLE_SECONDS", 1)

    found = gpu.answer("long", dict(os.environ), tmp_path / "long", gpu.time.monotonic() + 100, "cpu")

    started = [int(path.suffix.removeprefix(".")) for path in tmp_path.glob("long.*")]
    assert found["outcome"] == gpu.FAILED and "its 2 s were over" in str(found["why"])
    assert len(started) == 2
    until(lambda: not any(is_alive(pid) for pid in started))
    assert not (tmp_path / "long").exists()


def test_a_part_that_is_not_known_and_a_missing_wheel_are_one_line(tmp_path: Path) -> None:
    code, said, _ = run(tmp_path, tmp_path, "savez")
    assert (code, "found savez, allowed: snapshots, pieces" in said) == (2, True)

    code, said, _ = run(tmp_path, tmp_path, "snapshots")
    assert code == 1
    assert "no wheel of unbroken; type `make gpu-wheels`" in said and "Traceback" not in said


def test_answers_of_several_calls_are_put_together_and_the_last_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- gpu -->\nold\n<!-- /gpu -->\nafter\n")
    monkeypatch.setattr(gpu, "PAGE", page)
    files = [tmp_path / name for name in ("first.json", "second.json")]
    for file, (number, passed) in zip(files, [(1, ["failure: x", gpu.PASSED]), (2, [gpu.PASSED] * 2)], strict=True):
        parts = {name: gpu.not_run("not asked for") for name in gpu.PARTS}
        parts["pieces"] = {"outcome": gpu.FAILED, "seconds": 3.4, "tests": dict(enumerate(passed)), "table": ""}
        if number == 1:
            parts["save-1gb"] = {"outcome": gpu.PASSED, "seconds": 9.0, "tests": {}, "table": "| a table |"}
        here = {"date": "2026-11-27", "gpu": f"GPU {number}", "python": "3.12", "torch": "2.11"}
        file.write_text(json.dumps({"machine": here, "parts": parts}))

    assert gpu.main(["--write", *map(str, files)]) == 0

    text = page.read_text()
    assert "| `pieces`: AMP, generators, compiled models, kills: bit for bit | 2 of 2 | 3 | 2026-11-27, GPU 2," in text
    assert "GPU 1" not in text
    assert "| a table |" in text
    assert "snapshots" not in text
    assert text.startswith("before\n<!-- gpu -->\n| part") and text.endswith("\n<!-- /gpu -->\nafter\n")
