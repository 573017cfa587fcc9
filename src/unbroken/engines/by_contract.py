"""A program that keeps the contract (docs/contract.md), before it was a run and after: what it saved, and where to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from unbroken.engines.export import copied_files, write_script
from unbroken.engines.foreign import Foreign, Found, copy_steady, refuse_parts
from unbroken.errors import CheckpointError, ConfigError
from unbroken.program.contract import HANDOVER_FILE
from unbroken.runs.checkpoint import PARTS, Checkpoint, verify_files
from unbroken.runs.passport import FILE_NAME, read_passport
from unbroken.runs.progress import Handover, Progress, parse_handover, read_told
from unbroken.runs.run import Run
from unbroken.runs.store import Store
from unbroken.system import fs

CHECKPOINT, CHECKPOINTS = "checkpoint", "checkpoints"
_FAR_UNIX = 4102444800.0  # 2100-01-01, for a program without a limit


def adopted_contract(run: Run, foreign: Foreign, draft: Path) -> Found:
    """Of a program that keeps the contract: what it had saved, with its progress.json, or as far as the user says."""
    folder = foreign.path
    if not folder.is_dir():
        raise ConfigError([f"{run.name}: --from: found {folder}, a file; allowed: a folder that the program had saved"])
    if is_own(folder):
        return _adopted_own(run, foreign, draft)
    refuse_parts(folder)
    names = [name.as_posix() for name in fs.tree_files(folder)]
    if links := [name for name in names if (folder / name).is_symlink()]:
        raise CheckpointError(f"{folder / links[0]}: a link; a checkpoint holds plain files only")
    told = folder / HANDOVER_FILE
    checked, not_checked = [], ["whether the program can go on from these files: only it knows"]
    if told.is_file():
        handover = _told(told)
        checked.append(f"how far they are: {HANDOVER_FILE} says {handover.progress.done:.10g}")
    elif foreign.done is not None:
        handover = Handover(Progress(foreign.done, run.goal, str(run.settings.get("goal_unit", "steps"))))
        not_checked.append(f"how far they are: {foreign.done:.10g} was typed")
    else:
        raise ConfigError(
            [f"{run.name}: {told}: not there, so nobody knows how far it is; type for example --done 1200"]
        )
    copy_steady((folder / name, draft / name) for name in names if name != HANDOVER_FILE)
    return Found(handover, tuple(checked), tuple(not_checked))


def _told(path: Path) -> Handover:
    try:
        return parse_handover(read_told(path), str(path))
    except ValueError as error:
        raise CheckpointError(f"{path}: not JSON ({error})") from error


def is_own(folder: Path) -> bool:
    """True for a checkpoint of unbroken, or a folder with some: of another run, or of a training started by hand."""
    return (folder / FILE_NAME).is_file() or (folder / CHECKPOINTS).is_dir()


def _adopted_own(run: Run, foreign: Foreign, draft: Path) -> Found:
    """The newest good one; `publish` takes its digests over, and what was published is read once more by them."""
    if foreign.done is not None:
        raise ConfigError([f"{run.name}: --done: the passport says how far it is; leave it out"])
    checkpoint, passed_over = _own_checkpoint(run, foreign.path)
    if checkpoint.parts:
        raise CheckpointError(
            f"{run.name}: {checkpoint.folder}: has pieces of results in {PARTS}/, which only its own run can join; "
            "type there: unbroken export"
        )
    passport = checkpoint.passport
    copy_steady((checkpoint.folder / name, draft / name) for name in passport.files)
    versions = {name: text for name, text in passport.versions.items() if name != "unbroken"}
    handover = Handover(
        passport.progress,
        is_finished=passport.is_finished,
        versions=versions,
        algorithm=passport.algorithm,
        digests=passport.files,
    )
    checked = (f"checkpoint {checkpoint.name} of unbroken: every byte, by its passport", *passed_over)
    return Found(handover, checked, (), passport.adopted.lost if passport.adopted else ())


def _own_checkpoint(run: Run, folder: Path) -> tuple[Checkpoint, list[str]]:
    """The one that is meant, every byte of it read, and what is said of newer ones that are bad."""
    if (folder / FILE_NAME).is_file():
        found = [Checkpoint(folder, read_passport(folder))]
    else:
        found = list(reversed(Store(folder / CHECKPOINTS).readable()))
    passed_over = []
    for checkpoint in found:
        try:
            verify_files(checkpoint)
        except CheckpointError as error:
            passed_over.append(f"passed over, because it is bad: {error}")
            continue
        return checkpoint, passed_over
    raise CheckpointError(f"{run.name}: {folder}: {passed_over[0] if passed_over else 'has no checkpoint'}")


def exported_contract(
    run: Run, checkpoint: Checkpoint, command: Sequence[str], environment: Mapping[str, str], folder: Path
) -> list[str]:
    """The checkpoint, and a script that tells the program what unbroken would tell it; it saves beside."""
    copied_files(checkpoint, folder / CHECKPOINT)
    (folder / "save").mkdir()
    told = {
        **environment,
        "UNBROKEN_DEADLINE": f"{_FAR_UNIX:.3f}",
        "UNBROKEN_SEGMENT": str(checkpoint.passport.segment + 1),
    }
    here = {
        "UNBROKEN_RESUME": f"$here/{CHECKPOINT}",
        "UNBROKEN_SAVE": "$here/save",
        "UNBROKEN_STOP": "$here/stop",
        "UNBROKEN_PROGRESS": "$here/progress.json",
        "UNBROKEN_LIVE": "$here/live",
        "UNBROKEN_VERDICT": "$here/verdict.json",
    }
    del told["UNBROKEN_DEADLINE_FILE"]
    write_script(folder, run, command, {name: text for name, text in told.items() if name not in here}, here)
    return [
        "resume.sh starts the program with UNBROKEN_RESUME; what it saves, its results too, comes into save/",
        "it is told no limit of time, and stops when a file named stop appears here",
    ]
