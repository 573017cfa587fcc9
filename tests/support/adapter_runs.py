"""Starts `adapter_program.py` as a process of its own, again and again, and reads what it left."""

import json
import os
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import pytest
from support.prefork import start_script

PROGRAM = Path(__file__).with_name("adapter_program.py")
MODULES = ("torch", "torch.utils.data", "transformers.trainer", "pytorch_lightning", "accelerate")


def needs_adapters() -> pytest.MarkDecorator:
    """Return a mark that skips a test where a framework is missing; none is imported for that, which takes seconds."""
    missing = [name for name in ("torch", "accelerate", "pytorch_lightning", "transformers") if not find_spec(name)]
    return pytest.mark.skipif(bool(missing), reason=f"missing: {', '.join(missing)} (pip install unbroken[adapters])")


@dataclass
class AdapterRun:
    """A training by hand in a folder, of one framework."""

    root: Path
    framework: str
    options: dict[str, object] = field(default_factory=dict)
    names_folder: bool = True  # by the environment
    told: dict[str, str] = field(default_factory=dict)  # as by a workflow, which hands over

    def __post_init__(self) -> None:
        self.root.mkdir(parents=True)

    @property
    def folder(self) -> Path:
        return self.root / "kept"

    def start(self, **more: object) -> int:
        """One attempt; returns its exit code."""
        words = ["python", str(PROGRAM), self.framework, json.dumps({**self.options, **more})]
        told = {"UNBROKEN_FOLDER": str(self.folder)} if self.names_folder else {}
        if self.told:
            (self.root / "save").mkdir()
            places = {name: str(self.root / name.lower()) for name in ("SAVE", "STOP", "PROGRESS")}
            told = {f"UNBROKEN_{name}": value for name, value in {"RUN": "demo", **places, **self.told}.items()}
        told |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        with (self.root / "log").open("ab") as log:
            return start_script(words, MODULES, self.root, {**os.environ, **told}, log).wait(200)

    @property
    def log(self) -> str:
        return (self.root / "log").read_text()

    @property
    def saved(self) -> list[dict[str, object]]:
        """The progress of each checkpoint."""
        manifests = sorted((self.folder / "checkpoints").glob("[0-9]*/manifest.json"))
        return [json.loads(path.read_text())["progress"] for path in manifests]

    @property
    def steps(self) -> list[int]:
        """The steps at which there are checkpoints; five are an epoch."""
        return sorted({round(one["done"] * (5 if one["unit"] == "epochs" else 1)) for one in self.saved})

    @property
    def handed(self) -> list[dict[str, object]]:
        """What was said of each checkpoint that was handed over."""
        return [json.loads(path.read_text()) for path in sorted(self.root.glob("save/*.ready/progress.json"))]

    @property
    def progress(self) -> dict[str, object]:
        return json.loads((self.folder / "progress.json").read_text())

    @property
    def seen(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in (self.root / "seen.jsonl").read_text().splitlines()]

    def samples(self, name: str = "samples") -> list[list[float]]:
        return [line[name] for line in self.seen if name in line]

    @property
    def end(self) -> dict[str, object]:
        return json.loads((self.root / "end.json").read_text())
