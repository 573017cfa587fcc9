"""The site: what one cluster calls things, and what that makes of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from unbroken.config.location import Branch, Item, Spot, mapping
from unbroken.config.messages import key_mistakes, refused, unknown
from unbroken.config.schema import Schemas, SettingKey
from unbroken.errors import Mistake
from unbroken.slurm.sbatch import wrong_words
from unbroken.store.run import RunSpec

_OF_A_RUN = ("partition", "account", "qos", "constraint", "gpu_type")
_A_PLACE = {"type": "object", "allowed": "keys of the site"}


@dataclass(frozen=True)
class Request:
    """Hold what a run asks of this cluster; `sources` maps each key of `_OF_A_RUN` to where its value was written."""

    partition: str | None
    account: str | None
    qos: str | None
    constraint: str | None
    gpu_type: str | None
    modules: tuple[str, ...]
    warn_seconds: int
    words: tuple[str, ...]
    sources: Mapping[str, str]


@dataclass(frozen=True)
class Site:
    """The settings for all runs, and for those of one place where they differ."""

    general: Mapping[str, Any]
    places: Mapping[str, Mapping[str, Any]]

    def request(self, run: RunSpec) -> Request:
        """Return what a run asks: its own value, else that of its place, else the site's; words and modules add up."""
        place = self.places.get(run.resources.place, {})
        values: dict[str, Any] = {**self.general, **place}
        sources = {
            key: f"site.places.{run.resources.place}.{key}" if key in place else f"site.{key}" for key in _OF_A_RUN
        }
        for key in _OF_A_RUN:
            if (own := getattr(run.resources, key)) is not None:
                values[key], sources[key] = own, f"runs.{run.name}.{key}"
        return Request(
            **{key: values[key] for key in _OF_A_RUN},
            modules=(*values["modules"], *run.environment.modules),
            warn_seconds=values["warn_seconds"],
            words=(*values["extra"], *run.resources.slurm_extra),
            sources=sources,
        )


def read_site(config: Mapping[str, object], schemas: Schemas) -> Site | None:
    """Return the site of a configuration that was found to be good; None if it has none, so Slurm is not meant."""
    written = config.get("site")
    if not isinstance(written, Mapping):
        return None
    general = schemas.site.settled(written)
    of_places = mapping(general.pop("places"))
    places = {str(name): schemas.site.settled(mapping(keys), with_defaults=False) for name, keys in of_places.items()}
    return Site(general, places)


def with_site_of_the_profile(config: Mapping[str, object], brought: Mapping[str, object]) -> Mapping[str, object]:
    """Return the configuration with the site that the profile's own configfile brought, which wins key by key.

    Snakemake has done so already, but not for a workflow that imports us: it hands us one part of its configuration.
    """
    site = brought.get("site")
    if not isinstance(site, Mapping):
        return config
    return {**config, "site": _merged(mapping(config.get("site")), site)}


def _merged(under: Mapping[Any, object], over: Mapping[Any, object]) -> dict[Any, object]:
    both = {**under, **over}
    return {
        key: _merged(mapping(under.get(key)), value) if isinstance(value, Mapping) else value
        for key, value in both.items()
    }


def site_mistakes(site: Mapping[Any, object], schemas: Schemas, *place: object) -> Iterator[Mistake]:
    """Yield the mistakes of the key `site`, or of one `place` in it, in the order of the file."""
    spot = Branch(("site", "places", *place) if place else ("site",))
    keys = {name: key for name, key in schemas.site.keys.items() if not place or name != "places"}
    of_run = dict.fromkeys(schemas.run.keys.keys() - keys, "is a key of a run; type it in config/config.yaml")

    def more(key: SettingKey, value: Any) -> Iterator[Mistake]:
        if key.name == "extra":
            yield from extra_mistakes(key.name, value, spot)
        for name, written in mapping(value).items() if key.name == "places" else ():
            yield from _place_mistakes(name, written, schemas)

    yield from key_mistakes(site, keys, spot.at, of_run, more)


def _place_mistakes(place: object, written: object, schemas: Schemas) -> Iterator[Mistake]:
    where = Branch(("site", "places", place)).at()
    if place not in schemas.places:
        yield unknown(place, schemas.places, {}).at(where)
    elif not isinstance(written, Mapping | None):
        yield refused(written, _A_PLACE).at(where)
    yield from site_mistakes(mapping(written), schemas, place)


def extra_mistakes(key: str, value: list[Any], spot: Spot) -> Iterator[Mistake]:
    """Yield a mistake for each word for sbatch that unbroken sets itself."""
    for number, text in wrong_words(value):
        yield Mistake(text, where=spot.at(key, Item(number)))
