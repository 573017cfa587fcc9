"""What Slurm's commands list, as rows of fields; nothing else in unbroken takes their text apart.

By `--format` with a separator: `--json` of Slurm 22.05 ignores the filters and fetches the whole queue.
"""

from __future__ import annotations

from collections.abc import Sequence

from unbroken.slurm.commands import PATIENCE_SECONDS, ask

SEPARATOR = "|"


def table(
    *words: str, columns: Sequence[str], patience_seconds: float = PATIENCE_SECONDS
) -> list[tuple[str, ...]] | None:
    """What squeue, sinfo, sacct or sacctmgr list in these columns, in their own names for them; None if no answer.

    Only the last column may hold a separator.
    """
    text = ask(*words, *_layout(words[0], columns), patience_seconds=patience_seconds)
    return None if text is None else rows_in(text, len(columns))


def rows_in(text: str, count: int) -> list[tuple[str, ...]]:
    """The lines of a text that have at least so many fields, without the space around each."""
    rows = (tuple(field.strip() for field in line.split(SEPARATOR, count - 1)) for line in text.splitlines())
    return [row for row in rows if len(row) == count]


def records(*words: str) -> list[dict[str, str]] | None:
    """Return what `scontrol show ...` prints of each thing, by Slurm's names; None if no answer."""
    text = ask("scontrol", "--oneliner", *words)
    return None if text is None else records_in(text)


def record(*words: str) -> dict[str, str]:
    """Return that of one thing; empty without an answer too."""
    return next(iter(records(*words) or []), {})


def records_in(text: str) -> list[dict[str, str]]:
    """Parse lines such as `PartitionName=gpu AllowQos=ALL`."""
    return [dict(word.split("=", 1) for word in line.split() if "=" in word) for line in text.splitlines()]


def _layout(command: str, columns: Sequence[str]) -> list[str]:
    """[man squeue, sinfo: --format; man sacct: --parsable2; man sacctmgr: format=, --parsable2]."""
    if command in ("squeue", "sinfo"):
        return ["--noheader", f"--format={SEPARATOR.join(columns)}"]
    names = ",".join(columns)
    return ["--noheader", "--parsable2", f"format={names}" if command == "sacctmgr" else f"--format={names}"]
