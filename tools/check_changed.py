"""`make check` for what a change touches: ruff and snakefmt look at those files, mypy at all that they may break.

A change is what differs from where this branch left origin/main, or from HEAD where there is no such branch, with the
files that git does not know yet. pyproject.toml, which holds the rules, touches everything.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
CODE = ("src/", "scripts/", "tests/", "tools/", "examples/", "benchmarks/")
TYPED = ("src/", "scripts/")
RULES = ("pyproject.toml", "constraints.txt")


def main(root: Path = ROOT) -> int:
    """Run each check that has something to look at, also after one that failed; 1 if any did."""
    changed = changed_files(root)
    print(f"{len(changed)} files changed", flush=True)
    codes = [subprocess.run([BIN / name, *words], cwd=root).returncode for name, *words in commands(changed, root)]
    return int(any(codes))


def commands(changed: list[str], root: Path) -> list[list[str]]:
    """What is to be run for these files, some of which may be gone."""
    everything = any(name in RULES for name in changed)
    python = [name for name in changed if name.endswith(".py") and name.startswith(CODE)]
    rules = [name for name in changed if name.endswith(".smk") or Path(name).name == "Snakefile"]
    types = everything or any(name.startswith(TYPED) for name in python)
    if everything:
        python, rules = [*CODE], ["Snakefile", "workflow"]
    python, rules = ([name for name in names if (root / name).exists()] for names in (python, rules))
    wanted = (
        [["ruff", "check", "--quiet", *python], ["ruff", "format", "--check", "--quiet", *python]] if python else []
    )
    return wanted + ([["snakefmt", "--check", *rules]] if rules else []) + ([["mypy"]] if types else [])


def changed_files(root: Path) -> list[str]:
    """Paths below the root that differ from the base; the rules, which touch all, where git does not say."""
    base = _git(root, "merge-base", "origin/main", "HEAD") or _git(root, "rev-parse", "HEAD")
    if not base:
        return [*RULES]
    known = _git(root, "diff", "--name-only", "--no-renames", base[0])
    return sorted({*known, *_git(root, "ls-files", "--others", "--exclude-standard")})


def _git(root: Path, *words: str) -> list[str]:
    done = subprocess.run(["git", "-c", "core.quotePath=off", *words], cwd=root, capture_output=True, text=True)
    return done.stdout.splitlines() if done.returncode == 0 else []


if __name__ == "__main__":
    sys.exit(main())
