"""Let the runs of a configuration name a preset: what it says stands for each setting that is not typed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from unbroken.config.location import Entry, mapping
from unbroken.errors import Mistake, config_error
from unbroken.presets.expand import Case
from unbroken.presets.preset import Preset, presets, unknown_preset
from unbroken.store.run import RunSpec


def with_preset(entry: Entry, defaults: Mapping[Any, object], base: Path) -> Entry:
    """Return a run with the settings of its preset, as if they were typed; raise ConfigError with what is wrong.

    `defaults` are the keys of all runs; settings that are typed there stand as well.
    """
    typed = {**mapping(defaults.get("settings")), **entry.settings}
    name = typed.get("preset")
    if not isinstance(name, str) or not name:
        return entry
    known = presets(base).get(name)
    if known is None:
        raise config_error([unknown_preset(name, base).at(entry.spot.at("settings", "preset"))])
    case, mistakes = _case_of(known, typed, base)
    if not mistakes:
        mistakes = [("input" if known.has_input else "preset", text) for text in case.mistakes()]
    if mistakes:
        raise config_error([Mistake(text, where=entry.spot.at("settings", key)) for key, text in mistakes])
    said = case.settings()
    more = [each for each in _texts(typed.get("inputs")) if each not in said["inputs"]]
    own = {key: value for key, value in said.items() if key not in typed}
    settings = {**own, **entry.settings, "inputs": [*said["inputs"], *more], "start": said["start"]}
    return replace(entry, written={**entry.values, "settings": settings})


def smaller_goal(run: RunSpec, base: Path) -> float | None:
    """Return the goal to which a run is rehearsed, as its preset says; None if the run's own is to be taken."""
    known = presets(base).get(str(run.settings.get("preset", "")))
    goal = known.rehearse.get("goal") if known is not None else None
    return goal if goal is not None and (run.goal is None or goal < run.goal) else None


def _case_of(known: Preset, typed: Mapping[Any, object], base: Path) -> tuple[Case, list[tuple[str, str]]]:
    words = tuple(_texts(typed.get("start")))
    if not known.has_input:
        return Case(known, base, words=words), []
    named = typed.get("input")
    if isinstance(named, str) and named:
        is_there = (base / named).is_file()
        why = f"found '{named}', which is no input of {known.name}: {_looks(known)}"
        wrong = [] if is_there and known.has_content(base / named) else [("input", why)]
        return Case(known, base, named, words), wrong
    found = list(dict.fromkeys(word for word in words if known.is_input(base, word)))
    if not found and words and known.input.get("optional"):
        return Case(known, base, words=words), []
    found = found or known.inputs_below(base)
    if len(found) == 1:
        return Case(known, base, found[0], words), []
    if found:
        return Case(known, base, "", words), [("input", f"found {', '.join(found)}; type which: `input: {found[0]}`")]
    return Case(known, base, "", words), [("input", f"found no input of {known.name}; {_looks(known)}")]


def _looks(known: Preset) -> str:
    content = known.input.get("content")
    names = " or ".join(known.input["files"])
    return f"allowed: a file {names}" + (f" in which a line matches {content}" if content else "")


def _texts(value: object) -> Iterator[str]:
    yield from map(str, value if isinstance(value, (list, tuple)) else ())
