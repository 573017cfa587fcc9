"""Options of sbatch that a user adds: those that unbroken sets itself are refused, and nodes are excluded by one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from unbroken.slurm.client import ask

# The options that a key says, by that key.
_KEYS = {
    "partition": ("--partition", "-p"),
    "account": ("--account", "-A"),
    "qos": ("--qos", "-q"),
    "constraint": ("--constraint", "-C"),
    "segment_minutes": ("--time", "-t", "--time-min"),
    "mem_mb": ("--mem", "--mem-per-cpu", "--mem-per-gpu"),
    "threads": ("--cpus-per-task", "-c", "--cpus-per-gpu"),
    "tasks": ("--ntasks", "-n", "--ntasks-per-gpu"),
    "nodes": ("--nodes", "-N"),
    "gpus": ("--gpus", "-G", "--gres", "--gpus-per-node", "--gpus-per-task"),
    "warn_seconds": ("--signal",),
}
# The options without which a chain of segments is none.
_OWN = (
    *("--job-name", "-J", "--output", "-o", "--error", "-e", "--parsable", "--export", "--comment", "--workdir"),
    *("--chdir", "-D", "--clusters", "-M", "--wrap", "--array", "-a", "--dependency", "-d", "--requeue"),
    *("--no-requeue", "--wait", "-W", "--test-only"),
)
# Slurm looks at its jobs from time to time and may signal this much sooner than asked [man sbatch, --signal].
EARLY_SECONDS = 60
_OWNERS = {option: key for key, options in _KEYS.items() for option in options} | dict.fromkeys(_OWN, "")


def wrong_words(words: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield for each word that sbatch must not be given its place, counted from 1, and what is wrong with it."""
    found = ((number + 1, _wrong(words, number)) for number in range(len(words)))
    yield from ((number, text) for number, text in found if text)


def _wrong(words: Sequence[str], number: int) -> str:
    """Return what is wrong with a word; empty if nothing is."""
    before, word, following = ["", *words, ""][number : number + 3]
    key = _OWNERS.get(_option(word))
    if key is not None:
        return f"found '{word}', which unbroken sets itself; " + (f"type `{key}:` instead" if key else "leave it out")
    if not word.startswith("-") and (not before.startswith("-") or "=" in before):
        return f"found '{word}', allowed: options of sbatch, such as --exclude=node7"
    nodes = _excluded_by(word, following)
    # Nodes on which a run fails are added to these, which a file, or nothing, leaves no place for.
    if nodes is None or (nodes and not nodes.startswith("-") and "/" not in nodes):
        return ""
    found = f"{word} {nodes}" if nodes == following and nodes else word
    return f"found '{found}', allowed: the names of nodes, such as --exclude=node7,node8"


def _option(word: str) -> str:
    """Return `--mem` of `--mem=4G` and of `--mem 4G`, `-p` of `-pgpu`."""
    return word[:2] if re.match(r"-[A-Za-z]", word) else re.split(r"[=\s]", word)[0]


def warning_words(job_minutes: float, warn_seconds: int) -> list[str]:
    """Return the words by which Slurm warns a job; none if it would do so in the first half, and so end its work."""
    latest = job_minutes * 60 / 2 - EARLY_SECONDS
    return [f"--signal=URG@{warn_seconds}"] if 0 < warn_seconds <= latest else []


def without_exclude(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the other words, and the nodes that they exclude."""
    rest, nodes = [], list[str]()
    left = iter(words)
    for word in left:
        excluded = _excluded_by(word, "")
        if excluded is None:
            rest.append(word)
        else:
            nodes.append(excluded or next(left, ""))
    return rest, nodes


def more_to_exclude(already: Sequence[str], avoid: Sequence[str], spare: int) -> list[str]:
    """Return those of `avoid` to exclude in addition to lists such as `node[1-3],big7`: in all at most `spare`.

    A job that no node is left for waits for ever (BadConstraints), or is refused.  None where Slurm does not say which
    nodes these lists name.
    """
    lists = ",".join(filter(None, already))
    said = ask("scontrol", "show", "hostnames", lists) if "[" in lists else lists.replace(",", " ")
    if said is None:
        return []
    excluded = set(said.split())
    return [node for node in avoid if node not in excluded][: max(0, spare - len(excluded))]


def _excluded_by(word: str, following: str) -> str | None:
    """Return what `--exclude=a`, `--exclude a`, `-x a` and `-xa` name, with the word after; None for other words."""
    option = re.match(r"(?:--exclude(?:=|$)|-x)(.*)", word)
    return None if option is None else option[1] or ("" if "=" in word else following)
