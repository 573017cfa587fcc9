"""Compare the environment of a run with the one that a checkpoint was made in; pure.

A part is what `program.environment` reads: its `path`, whose change is not reported, and what it consists of.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from unbroken.store.checkpoint import Passport

# So many of the changes of a part are printed, the others counted.
TOLD = 5
# Where a thing lies, and what enters it, do not say what it is.
_NOT_COMPARED = {"path", "runtime"}
_DIGEST_DIGITS = 19  # sha256: and twelve more

Parts = Mapping[str, Mapping[str, object]]


def changes(made: Passport, now: Parts, without: Collection[str] = ()) -> list[str]:
    """Return a line for each part that is not what it was when a checkpoint was made.

    Return none if the checkpoint does not say: its unbroken may not have looked.  Skip the parts `without`.
    """
    before, at = made.environment, f"checkpoint {made.sequence}"
    if not before:
        return []
    return [
        line
        for name in sorted({*before, *now} - {*without})
        if (line := _change(name, before.get(name), now.get(name), at))
    ]


def refusal(run: str, found: Sequence[str]) -> str:
    """Return the line for a strict run whose environment has changed: what, and what to type."""
    todo = "put it back, or type environment: tell below the run to go on from the same checkpoint with the change"
    return f"runs.{run}.environment: strict, and {'; '.join(found)}; {todo}"


def in_words(parts: Parts) -> str:
    """Return the environment of a run's program, for a line in the log."""
    return "; ".join(f"{name} {_words(part)}" for name, part in sorted(parts.items()))


def _change(name: str, before: Mapping[str, object] | None, now: Mapping[str, object] | None, at: str) -> str:
    if now is None:
        return f"{name} was there at {at}, and is not any more"
    if before is None:
        return f"{name} is new since {at}: {_words(now)}"
    found = [
        text for key in sorted({*before, *now} - _NOT_COMPARED) for text in _of_key(key, before.get(key), now.get(key))
    ]
    if not found:
        return ""
    more = f" and {len(found) - TOLD} more" if len(found) > TOLD else ""
    return f"{name} changed since {at}: {', '.join(found[:TOLD])}{more}"


def _of_key(key: str, before: object, now: object) -> Iterator[str]:
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for name in sorted({*before, *now}):
            yield from _of_value(name, before.get(name), now.get(name))
    else:
        yield from _of_value(key, before, now)


def _of_value(name: str, before: object, now: object) -> Iterator[str]:
    if before == now:
        return
    if before is None:
        yield f"{name} {_short(now)} is new"
    elif now is None:
        yield f"{name} {_short(before)} is gone"
    else:
        yield f"{name} {_short(before)} -> {_short(now)}"


def _words(part: Mapping[str, object]) -> str:
    words = [str(part[key]) for key in ("path",) if key in part]
    words += [f"{key} {_short(value)}" for key, value in part.items() if key != "path" and isinstance(value, str)]
    words += [f"{len(value)} {key}" for key, value in part.items() if isinstance(value, Mapping)]
    return ", ".join(words)


def _short(value: object) -> str:
    text = str(value)
    return text[:_DIGEST_DIGITS] if text.startswith("sha256:") else text
