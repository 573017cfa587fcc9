"""Words for sbatch that a user adds: which of them unbroken or Snakemake's plugin sets already."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

from snakemake_executor_plugin_slurm.validation import get_forbidden_slurm_options

from unbroken.slurm.excluded_nodes import excluded_by

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
_OWNERS = {option: key for key, options in _KEYS.items() for option in options} | dict.fromkeys(_OWN, "")


def wrong_words(words: Sequence[str]) -> Iterator[tuple[int, str]]:
    """For each word that sbatch must not be given: its place, counted from 1, and what is wrong with it."""
    wrong = False
    for number, word in enumerate(words, 1):
        following = words[number] if number < len(words) else ""
        if text := _wrong(word, words[number - 2] if number > 1 else "") or _wrong_exclude(word, following):
            wrong = True
            yield number, text
    # What the plugin would refuse later, in its own words, after the first job is due.
    if words and not wrong and (what := _refused_by_plugin(words)):
        yield (
            len(words),
            f"holds what Snakemake's Slurm plugin takes for the {what}, which it sets itself; leave it out",
        )


def _wrong(word: str, before: str) -> str:
    key = _OWNERS.get(_option(word))
    if key is not None:
        return f"found '{word}', which unbroken sets itself; " + (f"type `{key}:` instead" if key else "leave it out")
    if not word.startswith("-") and (not before.startswith("-") or "=" in before):
        return f"found '{word}', allowed: options of sbatch, such as --exclude=node7"
    return ""


def _wrong_exclude(word: str, following: str) -> str:
    """Nodes on which a run fails are added to these, which a file, or nothing, leaves no place for."""
    nodes = excluded_by(word, following)
    if nodes is None or (nodes and not nodes.startswith("-") and "/" not in nodes):
        return ""
    found = f"{word} {nodes}" if nodes == following and nodes else word
    return f"found '{found}', allowed: the names of nodes, such as --exclude=node7,node8"


def _option(word: str) -> str:
    """`--mem` of `--mem=4G` and of `--mem 4G`, `-p` of `-pgpu`."""
    return word[:2] if re.match(r"-[A-Za-z]", word) else re.split(r"[=\s]", word)[0]


def _refused_by_plugin(words: Sequence[str]) -> str:
    text = shlex.join(words)
    return next((what for pattern, what in get_forbidden_slurm_options().items() if re.search(pattern, text)), "")
