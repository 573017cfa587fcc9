"""The site: what one cluster calls things, and what that makes of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from unbroken.config.location import mapping
from unbroken.config.schema import Schema, Schemas
from unbroken.runs.run import Run

_OF_A_RUN = ("partition", "account", "qos", "constraint", "gpu_type")


@dataclass(frozen=True)
class Request:
    """What a run asks of this cluster; `sources` says for each key of `_OF_A_RUN` where its value was written."""

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

    def request(self, run: Run) -> Request:
        """A run's own value stands above that of its place, and that above the site's; words and modules add up."""
        place = self.places.get(run.place, {})
        values: dict[str, Any] = {**self.general, **place}
        sources = {key: f"site.places.{run.place}.{key}" if key in place else f"site.{key}" for key in _OF_A_RUN}
        for key in _OF_A_RUN:
            if (own := getattr(run, key)) is not None:
                values[key], sources[key] = own, f"runs.{run.name}.{key}"
        return Request(
            **{key: values[key] for key in _OF_A_RUN},
            modules=(*values["modules"], *run.modules),
            warn_seconds=values["warn_seconds"],
            words=(*values["extra"], *run.slurm_extra),
            sources=sources,
        )


def read_site(config: Mapping[str, object], schemas: Schemas) -> Site | None:
    """The site of a configuration that was found to be good; None if it has none, so Slurm is not meant."""
    written = config.get("site")
    if not isinstance(written, Mapping):
        return None
    schema = schemas.site
    general = {key: value for key, value in {**schema.defaults, **_settled(schema, written)}.items() if key != "places"}
    places = {str(name): _settled(schema, mapping(keys)) for name, keys in mapping(written.get("places")).items()}
    return Site(general, places)


def with_site_of_the_profile(config: Mapping[str, object], brought: Mapping[str, object]) -> Mapping[str, object]:
    """The configuration with the site that the profile's own configfile brought, which wins key by key.

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


def _settled(schema: Schema, written: Mapping[Any, object]) -> dict[str, Any]:
    return {name: schema.keys[name].settled(value) for name, value in written.items()}
