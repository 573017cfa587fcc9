#!/usr/bin/env python3
"""Answer what only a GPU can: `python3 tools/gpu.py [PART ...]`, for a machine that has torch and no network.

Needs Python 3.11 or newer with torch and nothing else: unbroken and what the tests import are installed from the wheels
that `make gpu-wheels` has gathered, into a folder that is removed afterwards.  Each part has a time limit and a folder
of its own; a part that fails hides none of the others.  What was found lies in gpu.json, and
`tools/gpu.py --write gpu.json` puts its tables into docs/benchmarks.md; of several files the last with a part counts.
"""

import argparse
import contextlib
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from xml.etree import ElementTree

from marked import write_between

ROOT = Path(__file__).resolve().parents[1]
WHEELS = ROOT / "build" / "gpu-wheels"
PAGE = ROOT / "docs" / "benchmarks.md"
MINUTES = 9.0
GENTLE_SECONDS = 15
# Of a part's output so much is kept.
TAIL = 6000
PASSED, FAILED, NOT_RUN = "passed", "FAILED", "not run"
# For what nobody can answer here.
OPEN = "needs two GPUs: NCCL between ranks, DDP and FSDP2 with a GPU for each rank"


@dataclass(frozen=True)
class Part:
    """Describe one question: a command, its limit in seconds, and what it asks."""

    asks: str
    seconds: float
    command: tuple[str, ...]


def tests(*files: str) -> tuple[str, ...]:
    """Return a run of pytest in which a warning is no error: any torch may warn as it likes."""
    settings = ("-o", "addopts=--import-mode=importlib", "-o", "filterwarnings=default", "-p", "no:cacheprovider")
    # A process that uses a GPU takes seconds to start, and a test starts several.
    beside = ("-n4", "--dist=loadgroup")
    return ("-m", "pytest", "-m", "gpu", *settings, *beside, "-q", "-rs", *(f"tests/unit/{name}.py" for name in files))


def saves(megabytes: int, *options: str) -> tuple[str, ...]:
    """Return one round of the benchmark, on the GPU."""
    sizes = (f"--megabytes={megabytes}", "--larger=0", "--rounds=1", "--variant-seconds=150")
    return ("benchmarks/save_beside.py", *sizes, *options)


SOME = "--only=no save,`torch.save`,beside the training,pinned"
PARTS = {
    "snapshots": Part("copies of a training's state, pinned, of one moment", 60, tests("test_training_gpu")),
    "pieces": Part("AMP, generators, compiled models, kills: bit for bit", 200, tests("test_training_device_kills")),
    "segments": Part("a chain without Snakemake, with kills", 120, tests("test_training_gpu_segments")),
    "ranks": Part("two ranks with DDP by gloo, one with FSDP2 by NCCL", 200, tests("test_training_gpu_ranks")),
    "adapters": Part("Trainer, Lightning, Accelerate: killed and resumed", 150, tests("test_training_gpu_adapters")),
    "save-100mb": Part("what a save of 100 MB costs a training", 150, saves(100, "--saves-alone")),
    "save-1gb": Part("the same with 1 GB", 240, saves(1000)),
    "save-4gb": Part("the same with 4 GB", 250, saves(4000, SOME, "--saves-alone")),
    "save-10gb": Part("the same with 10 GB", 500, saves(10_000, SOME, "--saves-alone")),
}


def main(words: Sequence[str] | None = None) -> int:
    """Return 1 if a part failed, 2 if there is no GPU."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)} (all)")
    parser.add_argument("--minutes", type=float, default=MINUTES, help=f"for all of them together ({MINUTES:g})")
    parser.add_argument("--json", type=Path, default=Path("gpu.json"), help="where the answers go (gpu.json)")
    parser.add_argument("--wheels", type=Path, default=WHEELS, help="what `make gpu-wheels` has gathered")
    parser.add_argument("--device", default="cuda", help="cpu tries the parts themselves where there is no GPU")
    parser.add_argument("--write", type=Path, nargs="+", metavar="FILE", help="run nothing: its tables go into docs/")
    given = parser.parse_args(words)
    if unknown := [name for name in given.parts if name not in PARTS]:
        parser.error(f"found {', '.join(unknown)}, allowed: {', '.join(PARTS)}")
    if given.write:
        write_tables([json.loads(file.read_text()) for file in given.write])
        return 0
    end = time.monotonic() + 60 * given.minutes
    with tempfile.TemporaryDirectory(prefix="unbroken-gpu-") as folder:
        environment = prepared(Path(folder), given.wheels, given.device)
        here = machine(environment)
        answers = {name: not_run("not asked for") for name in PARTS}
        for name in given.parts or PARTS:
            if given.device == "cuda" and not here["gpu"]:
                answers[name] = not_run(f"NO GPU: torch {here['torch']} sees none")
            else:
                answers[name] = answer(name, environment, Path(folder) / name, end, given.device)
            print(f"== {name:<10} {answers[name]['outcome']:<8} {answers[name]['why']}", flush=True)
            given.json.write_text(json.dumps({"machine": here, "parts": answers, "open": [OPEN]}, indent=1) + "\n")
    print(f"== open       {OPEN}\n== {given.json}")
    if given.device == "cuda" and not here["gpu"]:
        print("== NOTHING WAS TESTED ON A GPU")
        return 2
    return int(any(found["outcome"] == FAILED for found in answers.values()))


def prepared(folder: Path, gathered: Path, device: str) -> dict[str, str]:
    """Return the environment of all parts, in which `import unbroken` finds our wheel; SystemExit if there is none."""
    wheels = sorted(gathered.glob("*.whl"))
    ours = [path for path in wheels if path.name.startswith("unbroken-")]
    if not ours:
        sys.exit(f"{gathered}: no wheel of unbroken; type `make gpu-wheels` where there is a network, carry the folder")
    # Several wheels of one name are for several releases of Python: pip takes the one for this.
    here = {(found.name or "").replace("-", "_").lower() for found in distributions()}
    names = {path.name.partition("-")[0] for path in wheels} - {"unbroken"}
    lacking = [*map(str, ours), *sorted(name for name in names if name.lower() not in here)]
    install = ["--no-index", "--no-deps", "--no-compile", "--quiet", "--disable-pip-version-check"]
    places = ["--find-links", str(gathered), "--target", str(folder / "site")]
    command = [sys.executable, "-m", "pip", "install", *install, *places, *lacking]
    environment = {**os.environ, "PIP_ROOT_USER_ACTION": "ignore"}
    if subprocess.run(command, env=environment).returncode:
        sys.exit("pip could not install the wheels; see above")
    return {
        **environment,
        "PYTHONPATH": os.pathsep.join([str(folder / "site"), *filter(None, [os.environ.get("PYTHONPATH", "")])]),
        "UNBROKEN_GPU_DEVICE": device,
        # A fork of a process that has loaded torch may not use the GPU.
        "UNBROKEN_TEST_PREFORK": "0",
        "PYTHONUNBUFFERED": "1",
    }


def machine(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what the answers hold for; `gpu` is empty without one."""
    ask = (
        "import json, torch; there = torch.cuda.is_available()\n"
        "print(json.dumps({'torch': torch.__version__, 'cuda': torch.version.cuda or '',\n"
        "    'gpu': torch.cuda.get_device_name() if there else '', 'gpus': str(torch.cuda.device_count())}))"
    )
    done = subprocess.run([sys.executable, "-c", ask], env=environment, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{sys.executable}: import torch failed, see above; take a Python that has torch")
    return {"date": time.strftime("%Y-%m-%d"), "python": platform.python_version(), **json.loads(done.stdout)}


def answer(name: str, environment: Mapping[str, str], folder: Path, end: float, device: str) -> dict[str, object]:
    """Run a part in a folder of its own, which is removed, within its limit and what is left of the time."""
    part = PARTS[name]
    left = end - time.monotonic()
    if left < part.seconds / 2:
        return not_run(f"{max(left, 0):.0f} s are left, it may need {part.seconds:.0f}: python3 tools/gpu.py {name}")
    folder.mkdir()
    report, log = folder / "report.xml", folder / "log"
    options = [f"--junitxml={report}", f"--basetemp={folder / 'tests'}"]
    if "pytest" not in part.command:
        options = [f"--device={device}"]
    own = {"TMPDIR": str(folder), "UNBROKEN_BENCH_FOLDER": str(folder)}
    began = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, *part.command, *options],
            cwd=ROOT,
            env={**environment, **own},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code: int | str = process.wait(min(part.seconds, left))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)  # pytest then says what failed until now
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(GENTLE_SECONDS)
            code = f"its {min(part.seconds, left):.0f} s were over"
        finally:
            end_all(process)
    seconds, text = time.monotonic() - began, log.read_text(errors="replace")
    results = tests_in(report)
    shutil.rmtree(folder, ignore_errors=True)
    skipped = [test for test, outcome in results.items() if outcome.startswith("skipped")]
    found = {"outcome": PASSED if code == 0 and not skipped else FAILED, "seconds": round(seconds, 1)}
    why = f"{seconds:.0f} s: {part.asks}" if code == 0 else f"ended with {code} after {seconds:.0f} s: {part.asks}"
    why += f"; skipped: {', '.join(skipped)}" if skipped else ""
    return {**found, "why": why, "tests": results, "table": table_in(text), "log": text[-TAIL:]}


def end_all(process: "subprocess.Popen[bytes]") -> None:
    """Kill all that a part has started: a training that is left would take the GPU's memory from the next."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def not_run(why: str) -> dict[str, object]:
    """Return the answer of a part that was not asked."""
    return {"outcome": NOT_RUN, "why": why}


def tests_in(report: Path) -> dict[str, str]:
    """Return how each test went, from pytest's JUnit file."""
    if not report.exists():
        return {}
    found = {}
    for case in ElementTree.parse(report).iter("testcase"):
        bad = [f"{child.tag}: {child.get('message', '')}"[:300] for child in case if child.tag != "system-out"]
        found[case.get("name", "")] = bad[0] if bad else PASSED
    return found


def table_in(text: str) -> str:
    """Return what a benchmark prints to be published: from its line about the machine to its end; empty for tests."""
    found = re.search(r"^\d{4}-\d\d-\d\d, \d+ cores .*", text, re.MULTILINE | re.DOTALL)
    return found[0].strip() if found else ""


def write_tables(found: Sequence[Mapping[str, dict]]) -> None:
    """Put the tests and the tables between `<!-- gpu -->` and `<!-- /gpu -->`; SystemExit if they are not there."""
    lines, tables = ["| part | tests passed | seconds | on |", "| --- | --- | --- | --- |"], []
    for name, part in PARTS.items():
        answers = [(one["parts"][name], one["machine"]) for one in found if one["parts"][name]["outcome"] != NOT_RUN]
        if not answers:
            continue
        answer, here = answers[-1]
        if answer.get("tests"):
            of, passed = len(answer["tests"]), sum(outcome == PASSED for outcome in answer["tests"].values())
            on = f"{here['date']}, {here['gpu']}, Python {here['python']}, torch {here['torch']}"
            lines.append(f"| `{name}`: {part.asks} | {passed} of {of} | {answer['seconds']:.0f} | {on} |")
        if answer.get("table"):
            tables.append(f"\n{answer['table']}")
    write_between(PAGE, "gpu", "\n".join(lines + tables))


if __name__ == "__main__":
    sys.exit(main())
