"""A training that ran elsewhere: its checkpoint, by whatever library, becomes a run's first one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from unbroken.engines.by_contract import adopted_contract, is_own
from unbroken.engines.foreign import Foreign, Found, copy_steady, refuse_parts
from unbroken.errors import CheckpointError, ConfigError
from unbroken.program import process as child
from unbroken.program.contract import HANDOVER_FILE
from unbroken.program.entering import entered
from unbroken.program.rank_command import python_of
from unbroken.runs.adopted import Handed
from unbroken.runs.progress import Handover, Progress
from unbroken.runs.run import Run
from unbroken.system import fs, jsontext

# As the callback of Lightning calls what it hands over (unbroken.training.lightning).
LIGHTNING_FILE = "lightning.ckpt"
TRAINER_STATE, TRAINER_ARGUMENTS = "trainer_state.json", "training_args.bin"
DCP_METADATA = ".metadata"
ANSWER_SECONDS = 600.0
EPOCHS, STEPS = "epochs", "steps"
# Of the loader that takes the place of the user's own.
_ORDER = "the loader's own order: the order of each epoch comes from unbroken's seed, from the epoch on that is next"
_RANDOM = "the random states: what is drawn from here on, such as dropout, is not what one uninterrupted run draws"
_METRICS = "the metrics so far: final/metrics.csv begins here"
# What a name tells of a state that is to be there.
_PARTS = {"optim": "the optimizer's state", "sched": "the scheduler's state", "scal": "the gradient scaler's state"}
_RANDOM_KEYS = ("rng", "random", "seed_state")


def adopted(run: Run, base: Path, foreign: Foreign, draft: Path) -> Found:
    """By what lies there: unbroken's own, the contract's, the Trainer's, Accelerate's, Lightning's, torch.save's."""
    path = foreign.path
    if path.is_dir():
        return _kind_of(path)(run, foreign, draft)
    said = _said(run, base, path)
    lightning = said["lightning"]
    return _lightning(run, foreign, draft, said) if lightning else _saved(run, foreign, draft, said)


def _kind_of(path: Path) -> Callable[[Run, Foreign, Path], Found]:
    if is_own(path) or (path / HANDOVER_FILE).is_file():
        return adopted_contract
    if (path / TRAINER_STATE).is_file():
        return _trainer
    return _accelerate if _is_accelerate(path) else _folder


# --- a file or a folder of the user's own ---


def _saved(run: Run, foreign: Foreign, draft: Path, said: Mapping[str, Any]) -> Found:
    """A file of `torch.save`, which the script loads by `training.adopted`."""
    path, keys, numbers = foreign.path, said["keys"], said["numbers"]
    handed = _placed(run, foreign, path.name, numbers)
    copy_steady([(path, draft / path.name)])
    handed.write(draft)
    checked = [f"{path.name}: read without running code from it; holds {', '.join(sorted(keys)) or 'nothing'}"[:500]]
    lost = [f"{what}: no key of the file names it" for part, what in _PARTS.items() if not _names(keys, (part,))]
    lost += [] if _names(keys, _RANDOM_KEYS) else [_RANDOM]
    return _found(run, foreign, handed, said, checked, [*lost, _ORDER, _METRICS])


def _folder(run: Run, foreign: Foreign, draft: Path) -> Found:
    """A folder of which only the script knows what is in it, such as one of torch.distributed.checkpoint."""
    handed = _placed(run, foreign, ".", {})
    shards = sorted(path.name for path in foreign.path.glob("*.distcp"))
    if shards and not (foreign.path / DCP_METADATA).is_file():
        why = "which torch.distributed.checkpoint writes last: the save did not come to its end"
        raise CheckpointError(f"{run.name}: {foreign.path}: has no {DCP_METADATA}, {why}")
    checked = [
        f"there are {DCP_METADATA} and {len(shards)} files of torch.distributed.checkpoint: {', '.join(shards)}"[:500]
    ]
    _copy_folder(foreign.path, draft)
    handed.write(draft)
    found = _found(run, foreign, handed, {}, checked if shards else [], [_ORDER, _METRICS])
    unknown = "what is in the folder, its random states too: only the script knows"
    return replace(found, not_checked=(*found.not_checked, unknown))


def _found(
    run: Run, foreign: Foreign, handed: Handed, said: Mapping[str, Any], checked: list[str], lost: list[str]
) -> Found:
    unit = _unit(run)
    done = handed.epoch if unit == EPOCHS else handed.step
    not_checked = ["whether the script loads all of it: three lines by `training.adopted`"]
    not_checked += [f"how far it is: {foreign.done:.10g} {unit} were typed"] if foreign.done is not None else []
    return Found(_handover(run, float(done), said), tuple(checked), tuple(not_checked), tuple(lost))


def _names(keys: Mapping[str, str], parts: tuple[str, ...]) -> bool:
    return any(part in key.lower() for key in keys for part in parts)


def _placed(run: Run, foreign: Foreign, name: str, numbers: Mapping[str, float]) -> Handed:
    """Where it is, in the unit of the goal as it was typed; the other number as the file says it.

    Whether a key `epoch` is the last epoch that is finished or the next one nobody knows, so it is not taken.
    """
    if foreign.done is None:
        said = {key: value for key, value in numbers.items() if key.lower() in ("epoch", "step", "global_step")}
        hint = "; ".join(f"its key {key} is {value:g}" for key, value in said.items())
        also = f" ({hint}, and nobody knows whether that one is finished)" if hint else ""
        unit = _unit(run)
        raise ConfigError([f"{run.name}: {foreign.path} does not say how many {unit} are done{also}; type --done N"])
    if foreign.done != int(foreign.done):
        found = f"found {foreign.done:g}, allowed: a whole number, because an epoch begins anew"
        raise ConfigError([f"{run.name}: --done: {found}"])
    done = int(foreign.done)
    step = next((int(numbers[key]) for key in ("global_step", "step") if key in numbers), 0)
    if _unit(run) == EPOCHS:
        return Handed(name, done, step)
    return Handed(name, int(numbers.get("epoch", 0)), done)


# --- libraries that say how far they are ---


def _lightning(run: Run, foreign: Foreign, draft: Path, said: Mapping[str, Any]) -> Found:
    """A checkpoint of ModelCheckpoint, from the end of an epoch."""
    _refuse_done(run, foreign, "Lightning's checkpoint")
    path, lightning = foreign.path, said["lightning"]
    if not lightning["has_optimizers"] or lightning["epochs"] is None or lightning["step"] is None:
        raise CheckpointError(f"{run.name}: {path}: holds the weights alone (save_weights_only), nothing to go on from")
    if not lightning["is_at_end"]:
        raise CheckpointError(
            f"{run.name}: {path}: was made in the middle of an epoch, and Lightning does not save the loader's place; "
            "take one from the end of an epoch (every_n_epochs)"
        )
    handed = Handed(LIGHTNING_FILE, int(lightning["epochs"]), int(lightning["step"]))
    copy_steady([(path, draft / LIGHTNING_FILE)])
    handed.write(draft)
    done = handed.epoch if _unit(run) == EPOCHS else handed.step
    checked = [
        f"{path.name}: Lightning {lightning['version']}, read without running code from it; weights, optimizers, loops",
        f"how far it is: {handed.epoch} epochs, {handed.step} steps",
    ]
    return Found(_handover(run, float(done), said), tuple(checked), (), (_RANDOM, _ORDER))


def _trainer(run: Run, foreign: Foreign, draft: Path) -> Found:
    """`checkpoint-1200` of the Trainer of Hugging Face."""
    _refuse_done(run, foreign, TRAINER_STATE)
    path = foreign.path
    state = _json(run, path / TRAINER_STATE)
    step, epoch = state.get("global_step"), state.get("epoch")
    if not isinstance(step, int) or not isinstance(epoch, (int, float)):
        raise CheckpointError(f"{run.name}: {path / TRAINER_STATE}: says no global_step and epoch")
    if not (path / "optimizer.pt").is_file():
        raise CheckpointError(f"{run.name}: {path}: has no optimizer.pt (save_only_model): nothing to go on from")
    if not any((path / name).is_file() for name in _WEIGHTS):
        raise CheckpointError(f"{run.name}: {path}: has no weights ({', '.join(_WEIGHTS)})")
    lost = [] if (path / "scheduler.pt").is_file() else [f"{_PARTS['sched']}: there is no scheduler.pt"]
    random = sorted(path.glob("rng_state*.pth"))
    lost += [] if random else [_RANDOM]
    _copy_folder(path, draft, left_out=(TRAINER_ARGUMENTS,))
    checked = [
        f"how far it is: {TRAINER_STATE} says step {step}, epoch {epoch:.10g}",
        f"there are weights, optimizer.pt{', scheduler.pt' if len(lost) == (not random) else ''}",
        *([f"random states of {len(random)} ranks: {', '.join(each.name for each in random)}"] if random else []),
    ]
    not_checked = [f"{TRAINER_ARGUMENTS} was left out: reading it would run code, and the script makes its own"]
    not_checked += ["whether the script has the arguments and data as before: the Trainer skips what was trained"]
    done = float(epoch) if _unit(run) == EPOCHS else float(step)
    return Found(_handover(run, done, {}), tuple(checked), tuple(not_checked), tuple(lost))


_WEIGHTS = (
    "model.safetensors",
    "pytorch_model.bin",
    "model.safetensors.index.json",
    "pytorch_model.bin.index.json",
    "adapter_model.safetensors",
)


_ACCELERATE = ("model.safetensors", "pytorch_model.bin", "optimizer.bin", "scheduler.bin", "random_states_0.pkl")


def _is_accelerate(path: Path) -> bool:
    return (path / "random_states_0.pkl").is_file() or (path / "optimizer.bin").is_file()


def _accelerate(run: Run, foreign: Foreign, draft: Path) -> Found:
    """A folder of `accelerator.save_state`, made between two epochs; Accelerate does not save how many."""
    path = foreign.path
    handed = _placed(run, foreign, ".", {})
    _copy_folder(path, draft)
    handed.write(draft)
    has_random = (path / "random_states_0.pkl").is_file()
    checked = [f"there are {', '.join(name for name in _ACCELERATE if (path / name).is_file())}"]
    done = float(handed.epoch if _unit(run) == EPOCHS else handed.step)
    not_checked = [f"how far it is: {done:.10g} {_unit(run)} were typed", "that it was made between two epochs"]
    lost = (_ORDER,) if has_random else (_RANDOM, _ORDER)
    return Found(_handover(run, done, {}), tuple(checked), tuple(not_checked), lost)


# --- inside ---


def _said(run: Run, base: Path, path: Path) -> dict[str, Any]:
    """What the training's own Python says of a file; CheckpointError if it holds what only running code could read."""
    python = python_of(run)
    text = Path(__file__).with_name("checkpoint_reader.py").read_text()
    command = [python, "-c", text, str(path.resolve())]
    answer = child.ask(entered(command, run, base), seconds=ANSWER_SECONDS)
    said = next((line for line in reversed(answer.lines) if line.startswith("{")), "")
    try:
        data = json.loads(said)
    except ValueError as error:
        last = answer.lines[-1] if answer.lines else "nothing"
        raise CheckpointError(f"{run.name}: {path}: {python} could not read it; it said: {last}") from error
    if "error" in data:
        raise CheckpointError(
            f"{run.name}: {path}: {data['error']}; nothing was taken over; save tensors, numbers and text alone "
            "(torch.load(weights_only=True) must read it)"
        )
    return dict(data)


def _handover(run: Run, done: float, said: Mapping[str, Any]) -> Handover:
    versions = {"torch": str(said["torch"])} if "torch" in said else {}
    return Handover(Progress(done, run.goal, _unit(run)), versions=versions)


def _unit(run: Run) -> str:
    return str(run.settings["goal_unit"])


def _refuse_done(run: Run, foreign: Foreign, what: str) -> None:
    if foreign.done is not None:
        raise ConfigError([f"{run.name}: --done: {what} says how far it is; leave it out"])


def _json(run: Run, path: Path) -> dict[str, Any]:
    try:
        data = jsontext.parse(path.read_bytes())
    except ValueError as error:
        raise CheckpointError(f"{run.name}: {path}: not JSON ({error})") from error
    if not isinstance(data, dict):
        raise CheckpointError(f"{run.name}: {path}: holds no object")
    return data


def _copy_folder(source: Path, target: Path, left_out: tuple[str, ...] = ()) -> None:
    refuse_parts(source)
    copy_steady(_files(source, target, left_out))


def _files(source: Path, target: Path, left_out: tuple[str, ...]) -> Iterator[tuple[Path, Path]]:
    for name in fs.tree_files(source):
        if (source / name).is_symlink():
            raise CheckpointError(f"{source / name}: a link; a checkpoint holds plain files only")
        if name.as_posix() not in left_out:
            yield source / name, target / name
