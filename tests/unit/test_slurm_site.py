"""What a site's settings make of a run, and what is said of mistakes in them."""

from dataclasses import replace

import pytest
import yaml
from support.toyrun import toy_run

from unbroken.config.load import read_runs
from unbroken.config.package_files import root_folder
from unbroken.config.site import Site, read_site, with_site_of_the_profile
from unbroken.engines.found import known_schemas
from unbroken.errors import ConfigError

SCHEMAS = known_schemas()
ROOT = root_folder()
RUNS = "runs: {demo: {engine: toy, segments: 4, segment_minutes: 2, settings: {goal: 9}}}"
TEXT = """
site:
  account: physics
  modules: [gcc/12]
  extra: [--mail-type=FAIL]
  places:
    short: {partition: batch}
    gpu: {partition: a100q, gpu_type: a100, account: null, modules: [cuda], warn_seconds: 30}
"""


def site(text: str = TEXT) -> Site:
    found = read_site(yaml.safe_load(text), SCHEMAS)
    assert found is not None
    return found


def test_a_place_stands_above_the_site_even_with_null():
    short, gpu = site().request(toy_run(place="short")), site().request(toy_run(place="gpu"))

    assert (short.partition, short.account, short.gpu_type, short.warn_seconds) == ("batch", "physics", None, 90)
    assert (gpu.partition, gpu.account, gpu.gpu_type, gpu.warn_seconds) == ("a100q", None, "a100", 30)
    assert (short.modules, gpu.modules) == (("gcc/12",), ("cuda",))


def test_a_run_stands_above_its_place():
    run = toy_run(place="gpu", partition="long", account="mine", qos="high", constraint="fast", gpu_type="h100")

    request = site().request(run)

    assert (request.partition, request.account, request.qos) == ("long", "mine", "high")
    assert (request.constraint, request.gpu_type) == ("fast", "h100")


def test_modules_and_words_of_a_run_come_after_those_of_the_site():
    request = site().request(toy_run(modules=("lammps",), slurm_extra=("--exclude=node7",)))

    assert (request.modules, request.words) == (("gcc/12", "lammps"), ("--mail-type=FAIL", "--exclude=node7"))


def test_a_request_knows_where_each_value_was_written():
    sources = site().request(toy_run(place="gpu", qos="high")).sources

    assert [sources[key] for key in ("partition", "account", "qos", "constraint")] == [
        "site.places.gpu.partition",
        "site.places.gpu.account",
        "runs.demo.qos",
        "site.constraint",
    ]


def test_without_a_site_slurm_is_not_meant():
    assert read_site({}, SCHEMAS) is None
    assert read_site({"site": None}, SCHEMAS) is None


def test_an_empty_site_has_every_default_of_the_schema():
    request = site("site: {}").request(toy_run())

    assert replace(request, sources={}) == replace(
        request,
        partition=None,
        account=None,
        qos=None,
        constraint=None,
        gpu_type=None,
        modules=(),
        warn_seconds=90,
        words=(),
        sources={},
    )


def test_the_site_of_a_profile_reaches_a_workflow_that_imports_us_and_wins_key_by_key():
    inner = {"runs": {}, "site": {"account": "mine", "places": {"gpu": {"partition": "g", "qos": "q"}}}}
    brought = {"site": {"account": "its", "places": {"gpu": {"partition": "x"}}}, "unbroken": inner}

    config = with_site_of_the_profile(inner, brought)

    assert config["site"] == {"account": "its", "places": {"gpu": {"partition": "x", "qos": "q"}}}
    assert with_site_of_the_profile(inner, {"unbroken": inner}) is inner


def test_the_site_that_comes_along_is_good_and_asks_for_the_partitions_short_and_gpu():
    text = (ROOT / "profiles/slurm/site.yaml").read_text()
    read_runs({**yaml.safe_load(RUNS), **yaml.safe_load(text)}, SCHEMAS, ROOT)

    found = site(text)

    assert [found.request(toy_run(place=place)).partition for place in ("short", "gpu")] == ["short", "gpu"]


KEYS = "partition, account, qos, constraint, gpu_type, modules, warn_seconds, extra"
MISTAKES = {  # the site: all that is said
    "site: slurm": ["site: found 'slurm', allowed: keys of the site"],
    "site: {acount: x}": ["site.acount: unknown key; did you mean `account`?"],
    "site: {nonsense: x}": [f"site.nonsense: unknown key, allowed: {KEYS}, places"],
    "site: {threads: 4}": ["site.threads: `threads` is a key of a run; type it in config/config.yaml"],
    "site: {account: 4711}": [
        'site.account: found 4711, allowed: text that is not empty or null; type "4711", with the quotes'
    ],
    "site: {warn_seconds: -1}": ["site.warn_seconds: found -1, allowed: a whole number from 0 to 65535"],
    "site: {modules: gcc}": [
        "site.modules: found 'gcc', allowed: a list, each item text that is not empty; type [\"gcc\"]"
    ],
    "site: {places: {long: {partition: x}}}": ["site.places.long: unknown key, allowed: short, gpu"],
    "site: {places: {gpus: {}}}": ["site.places.gpus: unknown key; did you mean `gpu`?"],
    "site: {places: {gpu: a100}}": ["site.places.gpu: found 'a100', allowed: keys of the site"],
    "site: {places: {gpu: {partition: 7, places: {}}}}": [
        'site.places.gpu.partition: found 7, allowed: text that is not empty or null; type "7", with the quotes',
        f"site.places.gpu.places: unknown key, allowed: {KEYS}",
    ],
    "site: {extra: [--partition=x, -pgpu, --mem 4G, --signal=USR1@60]}": [
        "site.extra item 1: found '--partition=x', which unbroken sets itself; type `partition:` instead",
        "site.extra item 2: found '-pgpu', which unbroken sets itself; type `partition:` instead",
        "site.extra item 3: found '--mem 4G', which unbroken sets itself; type `mem_mb:` instead",
        "site.extra item 4: found '--signal=USR1@60', which unbroken sets itself; type `warn_seconds:` instead",
    ],
    "site: {places: {gpu: {extra: [--exclude=a, b]}}}": [
        "site.places.gpu.extra item 2: found 'b', allowed: options of sbatch, such as --exclude=node7"
    ],
    "account: x": ["account: `account` is a key of a run; type it under `defaults` or under a run"],
    "warn_seconds: 5": ["warn_seconds: `warn_seconds` is a key of the site; type it under `site`"],
}


@pytest.mark.parametrize("written", MISTAKES)
def test_a_mistake_in_the_site_is_named_in_one_line(written):
    with pytest.raises(ConfigError) as error:
        read_runs({**yaml.safe_load(written), **yaml.safe_load(RUNS)}, SCHEMAS, ROOT)

    assert error.value.mistakes == MISTAKES[written]


WORDS = {  # slurm_extra of a run: what is said after `runs.demo.slurm_extra`
    "[--array=1-10%1]": [" item 1: found '--array=1-10%1', which unbroken sets itself; leave it out"],
    "[--exclude=node7, -d, singleton]": [
        " item 2: found '-d', which unbroken sets itself; leave it out",
    ],
    "[--gres=gpu:2, --ntasks-per-node=4]": [
        " item 1: found '--gres=gpu:2', which unbroken sets itself; type `gpus:` instead"
    ],
    "[node7]": [" item 1: found 'node7', allowed: options of sbatch, such as --exclude=node7"],
    # Nodes on which a run fails are added to these, so a file or nothing would spoil a later submission.
    "[--exclude]": [" item 1: found '--exclude', allowed: the names of nodes, such as --exclude=node7,node8"],
    "[--exclude=]": [" item 1: found '--exclude=', allowed: the names of nodes, such as --exclude=node7,node8"],
    "[-x, --exclusive]": [
        " item 1: found '-x --exclusive', allowed: the names of nodes, such as --exclude=node7,node8"
    ],
    "[--exclude=./bad.txt]": [
        " item 1: found '--exclude=./bad.txt', allowed: the names of nodes, such as --exclude=node7,node8"
    ],
    "--exclude=node7": [
        ": found '--exclude=node7', allowed: a list, each item text that is not empty; type [\"--exclude=node7\"]"
    ],
}


@pytest.mark.parametrize("written", WORDS)
def test_a_word_that_unbroken_sets_itself_is_refused_with_the_key_to_type(written):
    config = yaml.safe_load(RUNS)
    config["runs"]["demo"]["slurm_extra"] = yaml.safe_load(written)

    with pytest.raises(ConfigError) as error:
        read_runs(config, SCHEMAS, ROOT)

    assert error.value.mistakes == [f"runs.demo.slurm_extra{line}" for line in WORDS[written]]


def test_other_words_are_free_a_value_may_stand_apart_from_its_option():
    config = yaml.safe_load(RUNS)
    config["defaults"] = {
        "slurm_extra": ["--exclude=node7", "--mail-type", "END", "--reservation=course", "--ntasks-per-node=4"]
    }

    (run,) = read_runs(config, SCHEMAS, ROOT)

    assert run.resources.slurm_extra[1:3] == ("--mail-type", "END")
