"""Find what `unbroken init` needs of GROMACS: a tpr, or the files from which grompp makes one."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from unbroken.engines.gromacs.cpt import read_cpt
from unbroken.engines.starter import Starter, as_yaml, files_like, given_file, run_name
from unbroken.errors import CheckpointError, ConfigError

# The names that grompp and most tutorials give to what is to be run.
_USUAL = ("topol.tpr", "md.tpr", "prod.tpr", "production.tpr")


def starters(folder: Path, words: Sequence[str], is_named: bool) -> Iterator[Starter]:
    """Yield a run for the tpr that is named or has a usual name, else for each tpr, else for mdp, gro and top."""
    given = given_file("gromacs", folder, words) if is_named or (words[:1] and words[0].endswith(".tpr")) else None
    tprs = [given] if given else [] if words else files_like(folder, "*.tpr")
    usual = [path for path in tprs if path.name in _USUAL]
    for path in usual[:1] or tprs:
        setting = f"tpr: {as_yaml(str(path.relative_to(folder)))}"
        yield _starter(folder, run_name(path.stem, "md"), path.name, setting, stem=path.stem)
    if tprs or words:
        return
    found = [files_like(folder, pattern) for pattern in ("*.mdp", "*.gro", "*.top")]
    if all(len(paths) == 1 for paths in found):
        names = zip(("mdp", "structure", "topology"), (as_yaml(path.name) for (path,) in found), strict=True)
        settings = [f"{key}: {name}" for key, name in names]
        yield _starter(folder, run_name(found[0][0].stem, "md"), found[0][0].name, *settings)
    elif is_named:
        raise ConfigError(
            [f"init gromacs: no tpr, and not one mdp, gro and top each, in {folder.resolve()}; type gmx grompp"]
        )


def _starter(folder: Path, name: str, source: str, *settings: str, stem: str = "") -> Starter:
    goal = "# until_ps: 100000  # farther than the tpr says; raise it later and start again"
    todo = (
        [] if shutil.which("gmx") else ["gmx is not on the PATH; name its module below the run: `modules: [gromacs]`"]
    )
    if (begun := _begun(folder, stem)) is not None:
        path, at = begun
        words = ["unbroken", "import", name, "--from", str(path), *(["-d", str(folder)] if folder != Path() else [])]
        todo.append(f"{path}: {at}; to continue from there, stop mdrun and type this first: {shlex.join(words)}")
    return Starter(name, source, (*settings, goal), 60, False, tuple(todo))


def _begun(folder: Path, stem: str) -> tuple[Path, str] | None:
    """Return the checkpoint of a simulation that has begun, as `-deffnm` or mdrun itself calls it, and its place."""
    for path in (folder / f"{name}.cpt" for name in (stem, "state") if name):
        if path.is_file():
            try:
                cpt = read_cpt(path)
            except CheckpointError:  # `import` looks for the one before, and says what is wrong with this one
                return folder, "a simulation has begun"
            return path, f"a simulation has begun, and is at step {cpt.step}"
    return None
