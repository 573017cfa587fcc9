"""A training in plain PyTorch that saves and resumes by itself, by the environment contract; broken on request.

torch_state.py [FAULT]
"""

import json
import os
import sys
import time
from pathlib import Path

import torch

GOAL, STEP_SECONDS = int(os.environ["UNBROKEN_GOAL"]), 0.02
FAULT = " ".join(sys.argv[1:])


def main() -> int:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.1), torch.nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters())
    model[0].requires_grad_(FAULT != "unfrozen once")
    step = 0
    if resume := os.environ["UNBROKEN_RESUME"]:
        state = torch.load(Path(resume, "state.pt"), weights_only=True)
        step = state["step"]
        model.load_state_dict(state["model"])
        torch.set_rng_state(state["random"])
        if FAULT != "optimizer":
            optimizer.load_state_dict(state["optimizer"])
    saved_at = time.monotonic()
    while step < GOAL:
        if step == 20:
            model[0].requires_grad_()
        optimizer.zero_grad()
        model(torch.randn(16, 8)).pow(2).mean().backward()
        optimizer.step()
        step += 1
        tell(Path(os.environ["UNBROKEN_PROGRESS"]), step)
        time.sleep(STEP_SECONDS)
        is_told = os.path.exists(os.environ["UNBROKEN_STOP"]) or time.time() > deadline() - 0.5
        if is_told or step == GOAL or time.monotonic() - saved_at > float(os.environ["UNBROKEN_SAVE_SECONDS"]):
            save(model, optimizer, step)
            saved_at = time.monotonic()
        if is_told and step < GOAL:
            return 85
    return 0


def deadline() -> float:
    return float(Path(os.environ["UNBROKEN_DEADLINE_FILE"]).read_text())


def save(model: torch.nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    folder = Path(os.environ["UNBROKEN_SAVE"])
    draft = folder / "draft"
    draft.mkdir()
    state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save({**state, "random": torch.get_rng_state()}, draft / "state.pt")
    tell(draft / "progress.json", step)
    draft.rename(folder / f"{step:06d}.ready")


def tell(path: Path, step: int) -> None:
    path.with_suffix(".tmp").write_text(json.dumps({"done": step, "goal": GOAL, "unit": "steps"}))
    path.with_suffix(".tmp").replace(path)


if __name__ == "__main__":
    sys.exit(main())
