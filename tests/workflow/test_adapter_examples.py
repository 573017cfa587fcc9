"""The examples of the adapters as a user drives them: snakemake to the end, in segments that are told to leave."""

import shutil
from pathlib import Path

import pytest
import yaml
from support.workdir import ROOT, WorkDir, until

from unbroken.store.history import EndKind

pytest.importorskip("torch", reason="missing: torch (pip install torch)")

import torch

# The example, what it needs, its run, its goal here, and the file of its result that holds the weights.
CASES = [
    ("torch_transformers", "transformers", "sums", 16, "model.safetensors"),
    ("torch_lightning", "pytorch_lightning", "digits", 2, "model.ckpt"),
    ("torch_accelerate", "accelerate", "digits", 2, "model.pt"),
]


def weights(path: Path) -> object:
    """The weights byte by byte; around them pickles say the same in other bytes."""
    if path.suffix == ".safetensors":
        return path.read_bytes()
    state = torch.load(path, weights_only=True)
    return {name: value.numpy().tobytes() for name, value in state.get("state_dict", state).items()}


def stop(work: WorkDir, run: str, segment: int) -> None:
    """Tells a segment to leave before its program has come to the first step, which it then does after that one."""
    attempt_folder = work.places(run).work / f"{segment:06d}"
    until((attempt_folder / "save").exists)
    (attempt_folder / "stop").touch()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("example", "module", "run", "goal", "result"), CASES, ids=[case[1] for case in CASES])
def test_an_example_of_an_adapter_runs_to_its_end_in_segments_and_is_the_whole(
    work: WorkDir, example: str, module: str, run: str, goal: int, result: str
) -> None:
    pytest.importorskip(module, reason=f"missing: {module} (pip install unbroken[adapters])")
    work.added_environment["HF_HUB_OFFLINE"] = "1"
    shutil.copy(ROOT / "examples" / example / "train.py", work.root)
    told = yaml.safe_load((ROOT / "examples" / example / "config" / "config.yaml").read_text())["runs"][run]
    told["segment_minutes"] = 9  # on a slow machine, too, a segment ends where it is told to
    told["settings"] |= {"goal": goal, "args": []}
    work.configure({run: told, "whole": told})

    driver = work.start("--cores", "2")
    for segment in (1, 2):
        stop(work, run, segment)
    ended = driver.wait()

    records = {name: work.records(name) for name in (run, "whole")}
    assert ended.code == 0, ended.text
    assert [record.kind for record in records[run][:3]] == [EndKind.PAUSED, EndKind.PAUSED, EndKind.FINISHED]
    assert 0 < records[run][0].progress.done < records[run][1].progress.done < goal == records[run][2].progress.done
    assert records["whole"][0].kind is EndKind.FINISHED
    assert weights(work.places(run).final / result) == weights(work.places("whole").final / result)
