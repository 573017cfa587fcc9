"""What can be wrong with the site's settings as they are written; each mistake is one line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from unbroken.config.location import Branch, Item, Spot, mapping
from unbroken.config.messages import refused, unknown, wrong_values
from unbroken.config.schema import Schemas, SettingKey
from unbroken.slurm.sbatch_options import wrong_words

_A_PLACE = {"type": "object", "allowed": "keys of the site"}


def site_mistakes(site: Mapping[Any, object], schemas: Schemas) -> Iterator[str]:
    """All mistakes of the key `site`, in the order of the file."""
    below = {name: key for name, key in schemas.site.keys.items() if name != "places"}
    for name, value in site.items():
        yield from _of_key(name, value, schemas.site.keys, Branch(("site",)), schemas)
        for place, keys in mapping(value).items() if name == "places" else ():
            yield from _of_place(place, keys, below, schemas)


def extra_mistakes(key: str, value: object, spot: Spot) -> Iterator[str]:
    """Yield a line for each word for sbatch that unbroken sets itself."""
    for number, text in wrong_words(value) if isinstance(value, list) else ():
        yield f"{spot.at(key, Item(number))}: {text}"


def _of_place(place: object, keys: object, below: Mapping[str, SettingKey], schemas: Schemas) -> Iterator[str]:
    spot = Branch(("site", "places", place))
    if place not in schemas.places:
        yield f"{spot.at()}: {unknown(place, schemas.places, {})}"
    elif not isinstance(keys, Mapping | None):
        yield f"{spot.at()}: {refused(keys, _A_PLACE)}"
    for name, value in mapping(keys).items():
        yield from _of_key(name, value, below, spot, schemas)


def _of_key(name: object, value: object, keys: Mapping[str, SettingKey], spot: Spot, schemas: Schemas) -> Iterator[str]:
    key = keys.get(name) if isinstance(name, str) else None
    if key is None:
        of_run = {
            key: "is a key of a run; type it in config/config.yaml" for key in schemas.run.keys if key not in keys
        }
        yield f"{spot.at(name)}: {unknown(name, keys, of_run)}"
    elif wrong := wrong_values(key, value, spot):
        yield from wrong
    elif name == "extra":
        yield from extra_mistakes(key.name, value, spot)
