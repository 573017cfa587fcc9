"""Says as JSON what a file of `torch.save` holds, read without running code from it; run by the Python of the training.

Only torch and the standard library: the training's Python need not have unbroken.  No tensor is copied.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any


def main() -> None:
    """Prints one object: `error`, or the kinds and numbers at the top of the file, and what Lightning says."""
    try:
        import torch
    except ImportError as error:
        print(json.dumps({"error": f"this Python ({sys.executable}) has no torch: {error}"}))
        return
    found: dict[str, Any] = {"torch": str(torch.__version__)}
    try:
        data = _loaded(torch, sys.argv[1])
    except Exception as error:  # noqa: BLE001  (whatever a foreign file does, it is told)
        found["error"] = _first(str(error))
    else:
        found |= _described(torch, data)
    print(json.dumps(found))


def _loaded(torch: Any, path: str) -> Any:
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except RuntimeError as error:
        if "mmap" not in str(error):  # the format of torch before 1.6 cannot be mapped
            raise
    return torch.load(path, map_location="cpu", weights_only=True)


def _described(torch: Any, data: Any) -> dict[str, Any]:
    if not isinstance(data, dict):
        return {"error": f"it holds a {type(data).__name__}, allowed: a dictionary"}
    keys = {str(key): _kind(torch, value) for key, value in data.items()}
    numbers = {str(key): value for key, value in data.items() if type(value) in (int, float)}
    return {"keys": keys, "numbers": numbers, "lightning": _lightning(data)}


def _kind(torch: Any, value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return "tensor"
    return type(value).__name__


def _lightning(data: dict[Any, Any]) -> dict[str, Any] | None:
    """How far Lightning's loop was; None of another file."""
    if "pytorch-lightning_version" not in data:
        return None
    loops = data.get("loops") or {}
    fit = loops.get("fit_loop") or {}
    epochs = (fit.get("epoch_progress") or {}).get("current") or {}
    batches = fit.get("epoch_loop.batch_progress") or {}
    current = batches.get("current") or {}
    return {
        "version": str(data["pytorch-lightning_version"]),
        "step": data.get("global_step"),
        "epochs": epochs.get("processed"),
        "is_at_end": bool(batches.get("is_last_batch")) and current.get("ready") == current.get("completed"),
        "has_optimizers": bool(data.get("optimizer_states")),
        "loaders": bool(fit.get("state_dict")),
    }


def _first(text: str) -> str:
    """Which class the file needs, where torch says so; else its first line."""
    match = re.search(r"GLOBAL (\S+)", text)
    if match:
        return f"it needs {match[1]}, which only running code from it could make"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if lines else "torch says nothing of it"


if __name__ == "__main__":
    main()
