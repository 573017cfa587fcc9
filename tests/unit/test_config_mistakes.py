"""The configuration: every mistake in one line, all of them at once, in the order of the file."""

from pathlib import Path

import pytest
import yaml

from unbroken.config.load import read_runs
from unbroken.config.messages import listed
from unbroken.config.package_files import root_folder
from unbroken.engines.found import known_schemas
from unbroken.errors import ConfigError

ROOT = root_folder()
SCHEMAS = known_schemas()
GOOD = "engine: toy, segments: 4, segment_minutes: 2"
TOY = "settings: {goal: 9}"
RUN_KEYS = (
    "engine, segments, segment_minutes, place, note, threads, tasks, nodes, mem_mb, memory_growth, "
    "gpus, partition, account, qos, constraint, gpu_type, slurm_extra, keep, milestone_every, copies, save_minutes, "
    "mtbf_hours, stall_minutes, first_margin_seconds, attempts_without_progress, "
    "modules, enter, container, container_options, conda, venv, environment, settings"
)
NAME = "a letter or digit, then up to 99 letters, digits, dots, underscores and hyphens"
PATH = "the path of a file"
COPIES = "a mapping such as {folder: /backup/me, keep: 2, every_minutes: 0}, or null"
ENGINES = listed(SCHEMAS.engines)
LENGTH = "a number above 0, or {at_least: 60, at_most: 480}"
YES = "true (so YAML reads yes, on and true)"


def mistakes(text: str, base: Path = ROOT) -> list[str]:
    with pytest.raises(ConfigError) as error:
        read_runs(yaml.safe_load(text) or {}, SCHEMAS, base)
    return error.value.mistakes


IN_RUN = {  # what stands in the run beside the good keys: what is said after `runs.demo`
    "segmets: 4": [".segmets: unknown key; did you mean `segments`?"],
    "walltime: 4": [f".walltime: unknown key, allowed: {RUN_KEYS}"],
    "1: 4": [f".1: unknown key, allowed: {RUN_KEYS}"],
    "goal: 4": [".goal: `goal` is a setting; type it under `settings`"],
    "engine: tory": [".engine: found 'tory', allowed: {engines}; did you mean `toy`?"],
    "engine: 7": [".engine: found 7, allowed: {engines}"],
    "place: gpus": [".place: found 'gpus', allowed: short or gpu; did you mean `gpu`?"],
    "place: on": [f".place: found {YES}, allowed: short or gpu"],
    "segments: ten": [".segments: found 'ten', allowed: a whole number from 1 to 99999"],
    "segments: '8'": [".segments: found '8', allowed: a whole number from 1 to 99999; type 8"],
    "segments: 1e3": [".segments: found '1e3', allowed: a whole number from 1 to 99999; type 1000"],
    "segments: '0'": [".segments: found '0', allowed: a whole number from 1 to 99999"],
    "segments: 2.5": [".segments: found 2.5, allowed: a whole number from 1 to 99999"],
    "segments: 0": [".segments: found 0, allowed: a whole number from 1 to 99999"],
    "segments: 100000": [".segments: found 100000, allowed: a whole number from 1 to 99999"],
    "segments: yes": [f".segments: found {YES}, allowed: a whole number from 1 to 99999"],
    "segments: null": [".segments: found nothing, allowed: a whole number from 1 to 99999"],
    "segments: [4]": [".segments: found a list [4], allowed: a whole number from 1 to 99999"],
    "segment_minutes: 0": [f".segment_minutes: found 0, allowed: {LENGTH}"],
    "segment_minutes: {at_most: 9}": [".segment_minutes: `at_least` is missing; type for example `at_least: 60`"],
    "segment_minutes: {at_least: 0, at_most: 9}": [
        ".segment_minutes.at_least: found 0, allowed: a number above 0 (minutes)"
    ],
    "segment_minutes: {at_least: 1, at_most: 9, most: 2}": [
        ".segment_minutes.most: unknown key; did you mean `at_most`?"
    ],
    "segment_minutes: {at_least: 10, at_most: 9}": [
        ".segment_minutes.at_least: found 10, but at_most is 9, allowed: at most 9"
    ],
    "mtbf_hours: 0": [".mtbf_hours: found 0, allowed: a number above 0 or null"],
    "mtbf_hours: a day": [".mtbf_hours: found 'a day', allowed: a number above 0 or null"],
    "segment_minutes: -1.5": [f".segment_minutes: found -1.5, allowed: {LENGTH}"],
    "segment_minutes: .nan": [f".segment_minutes: found nan, allowed: {LENGTH}"],
    "segment_minutes: .inf": [f".segment_minutes: found inf, allowed: {LENGTH}"],
    "segment_minutes: '2.5'": [f".segment_minutes: found '2.5', allowed: {LENGTH}; type 2.5"],
    "segment_minutes: 5 h": [f".segment_minutes: found '5 h', allowed: {LENGTH}"],
    "threads: no": [".threads: found false (so YAML reads no, off and false), allowed: a whole number, 1 or more"],
    "mem_mb: 2G": [".mem_mb: found '2G', allowed: a whole number, 1 or more"],
    "gpus: -1": [".gpus: found -1, allowed: a whole number, 0 or more or null"],
    "keep: 0": [".keep: found 0, allowed: a whole number, 1 or more (checkpoints)"],
    "copies: /backup": [f".copies: found '/backup', allowed: {COPIES}"],
    "copies: {keep: 3}": [".copies: `folder` is missing; type for example `folder: /backup/me`"],
    "copies: {folder: /backup, kep: 3}": [".copies.kep: unknown key; did you mean `keep`?"],
    "copies: {folder: '', keep: 0, every_minutes: -1}": [
        ".copies.folder: found '', allowed: text that is not empty",
        ".copies.keep: found 0, allowed: a whole number, 1 or more (checkpoints)",
        ".copies.every_minutes: found -1, allowed: a number, 0 or more",
    ],
    "stall_minutes: 0": [".stall_minutes: found 0, allowed: a number above 0 or null"],
    "stall_minutes: never": [".stall_minutes: found 'never', allowed: a number above 0 or null"],
    "note: 2024": ['.note: found 2024, allowed: text; type "2024", with the quotes'],
    "note: yes": [f".note: found {YES}, allowed: text; put it into quotes"],
    "modules: gcc": [".modules: found 'gcc', allowed: a list, each item text that is not empty; type [\"gcc\"]"],
    "modules: [gcc, 12, '']": [
        '.modules item 2: found 12, allowed: text that is not empty; type "12", with the quotes',
        ".modules item 3: found '', allowed: text that is not empty",
    ],
    "enter: {image: a.sif}": [
        '.enter: found a mapping {"image": "a.sif"}, allowed: a list, each item text that is not empty or null'
    ],
    "environment: strikt": [".environment: found 'strikt', allowed: tell or strict; did you mean `strict`?"],
    "settings: 9": [".settings: found 9, allowed: the keys of the engine"],
    "settings: [goal, 9]": [
        '.settings: found a list ["goal", 9], allowed: the keys of the engine; type `name:` lines, not `- ` lines'
    ],
    "settings: {}": [".settings: `goal` is missing; type for example `goal: 400`"],
    "settings: {goal: null}": [".settings.goal: found nothing, allowed: a whole number, 1 or more (steps)"],
    "settings: {gaol: 9}": [".settings.gaol: unknown key; did you mean `goal`?"],
    "settings: {goal: 9, 2: 3}": [".settings.2: unknown key, allowed: goal, seed, step_seconds, save_steps"],
    "settings: {goal: 9, script: a.py}": [
        ".settings.script: `script` is a setting of jax, tensorflow or torch, not of toy"
    ],
    "settings: {goal: 9, threads: 2}": [".settings.threads: `threads` is a key of the run; type it beside `settings`"],
    "settings: {goal: 9, step_seconds: -1}": [".settings.step_seconds: found -1, allowed: a number, 0 or more"],
}


@pytest.mark.parametrize("written", IN_RUN)
def test_a_mistake_in_a_run_is_named_in_one_line(written):
    good = {"engine": "toy", "segments": 4, "segment_minutes": 2, "settings": {"goal": 9}}
    with pytest.raises(ConfigError) as error:
        read_runs({"runs": {"demo": good | yaml.safe_load(f"{{{written}}}")}}, SCHEMAS, ROOT)

    assert error.value.mistakes == [f"runs.demo{line.replace('{engines}', ENGINES)}" for line in IN_RUN[written]]


IN_TORCH = {  # the settings of a torch run: what is said after `runs.net.settings`
    "goal: 2": [": `script` is missing; type for example `script: train.py`"],
    "script: train.py": [": `goal` is missing; type for example `goal: 10`"],
    "script: trian.py, goal: 2": [".script: found 'trian.py', but there is no such file; did you mean `train.py`?"],
    "script: 'train{}.py', goal: 2": [
        ".script: found 'train{}.py', allowed: a name without braces, which Snakemake takes for wildcards"
    ],
    "script: cde/train.py, goal: 2": [".script: found 'cde/train.py', but there is no such file; looked in {base}/cde"],
    "script: data, goal: 2": [f".script: found 'data', which is a folder, allowed: {PATH}"],
    "script: 5, goal: 2": [f'.script: found 5, allowed: {PATH}; type "5", with the quotes'],
    "script: '', goal: 2": [f".script: found '', allowed: {PATH}"],
    "script: train.py, goal: 0": [".goal: found 0, allowed: a number above 0 (what goal_unit says)"],
    "script: train.py, goal: 2, seed: 1": [".seed: `seed` is a setting of toy, not of torch"],
    "script: train.py, goal: 2, args: [a, {lr: 1}, no]": [
        '.args item 2: found a mapping {"lr": 1}, allowed: text or a number',
        ".args item 3: found false (so YAML reads no, off and false), allowed: text or a number; put it into quotes",
    ],
    "script: train.py, goal: 2, args: --fast": [
        ".args: found '--fast', allowed: a list, each item text or a number; type [\"--fast\"]"
    ],
    "script: train.py, goal: 2, args: --name 'a b'": [
        '.args: found "--name \'a b\'", allowed: a list, each item text or a number; type ["--name", "a b"]'
    ],
    "script: train.py, goal: 2, inputs: [train.py, gone.npz, data]": [
        ".inputs: found 'gone.npz', but there is no such file; looked in {base}",
        f".inputs: found 'data', which is a folder, allowed: {PATH}",
    ],
    "script: train.py, goal: 2, python: 3.11": ['.python: found 3.11, allowed: text; type "3.11", with the quotes'],
}


@pytest.mark.parametrize("written", IN_TORCH)
def test_a_mistake_in_the_settings_is_named_in_one_line(written, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "train.py").touch()

    lines = mistakes(f"runs: {{net: {{{GOOD.replace('toy', 'torch')}, settings: {{{written}}}}}}}", tmp_path)

    assert lines == [f"runs.net.settings{line.replace('{base}', str(tmp_path))}" for line in IN_TORCH[written]]


RUN = f"{{{GOOD}, {TOY}}}"
WHOLE = {  # the whole file: all that is said
    "": ["runs: found none, allowed: one run or more; type one under `runs:` or name a table with `runs_table:`"],
    "runs: {}": [
        "runs: found none, allowed: one run or more; type one under `runs:` or name a table with `runs_table:`"
    ],
    f"run: {{demo: {RUN}}}": ["run: unknown key; did you mean `runs`?"],
    f"default: {{keep: 3}}\nruns: {{demo: {RUN}}}": ["default: unknown key; did you mean `defaults`?"],
    f"samples: a.tsv\nruns: {{demo: {RUN}}}": [
        "samples: unknown key, allowed: runs, defaults, runs_table, site, notify"
    ],
    f"threads: 4\nruns: {{demo: {RUN}}}": [
        "threads: `threads` is a key of a run; type it under `defaults` or under a run"
    ],
    f"2: 4\nruns: {{demo: {RUN}}}": ["2: unknown key, allowed: runs, defaults, runs_table, site, notify"],
    f"runs: {{x{'ab' * 20}: {RUN}}}": [
        f"runs.x{'ab' * 20}: found 'x{'ab' * 20}', allowed: another name ('ab' stands 20 times or more at its end, and "
        "Snakemake takes that for an endless loop)"
    ],
    "runs: [demo]": [
        'runs: found a list ["demo"], allowed: names of runs, each with its keys below it; '
        "type `name:` lines, not `- ` lines"
    ],
    "runs: demo": ["runs: found 'demo', allowed: names of runs, each with its keys below it"],
    "runs: {demo: }": ["runs.demo: found nothing, allowed: keys of a run"],
    "runs: {demo: toy}": ["runs.demo: found 'toy', allowed: keys of a run"],
    "runs: {demo: [toy]}": [
        'runs.demo: found a list ["toy"], allowed: keys of a run; type `name:` lines, not `- ` lines'
    ],
    f"runs: {{a b: {RUN}}}": [f"runs.a b: found 'a b', allowed: {NAME}"],
    f"runs: {{.hidden: {RUN}}}": [f"runs..hidden: found '.hidden', allowed: {NAME}"],
    f"runs: {{a/b: {RUN}}}": [f"runs.a/b: found 'a/b', allowed: {NAME}"],
    f"runs: {{'': {RUN}}}": [f"runs.: found '', allowed: {NAME}"],
    f'runs: {{"a\\n": {RUN}}}': [f"runs.'a\\n': found 'a\\n', allowed: {NAME}"],
    f"runs: {{'{'x' * 101}': {RUN}}}": [f"runs.{'x' * 101}: found '{'x' * 56}..., allowed: {NAME}"],
    f"runs: {{7: {RUN}}}": [f'runs.7: found 7, allowed: {NAME}; type "7", with the quotes'],
    f"runs: {{yes: {RUN}}}": [f"runs.True: found {YES}, allowed: {NAME}; put it into quotes"],
    "runs: {demo: {}}": [
        "runs.demo: `engine` is missing; type for example `engine: toy`",
        "runs.demo: `segments` is missing; type for example `segments: 20`",
        "runs.demo: `segment_minutes` is missing; type for example `segment_minutes: 60`",
    ],
    f"runs: {{demo: {{{GOOD}}}}}": ["runs.demo.settings: `goal` is missing; type for example `goal: 400`"],
    f"defaults: [keep]\nruns: {{demo: {RUN}}}": [
        'defaults: found a list ["keep"], allowed: keys of a run; type `name:` lines, not `- ` lines'
    ],
    f"defaults: {{kep: 3, note: all, keep: 0, goal: 4}}\nruns: {{a: {RUN}, b: {RUN}}}": [
        "defaults.kep: unknown key; did you mean `keep`?",
        "defaults.note: `note` belongs to one run; type it under the run",
        "defaults.keep: found 0, allowed: a whole number, 1 or more (checkpoints)",
        "defaults.goal: `goal` is a setting; type it under `settings`",
    ],
    f"defaults: {{settings: {{sed: 1, seed: x}}}}\nruns: {{a: {RUN}, b: {RUN}}}": [
        "defaults.settings.sed: unknown key; did you mean `seed`?",
        "defaults.settings.seed: found 'x', allowed: a whole number",
    ],
    f"defaults: {{settings: {{python: ''}}}}\nruns: {{a: {RUN}}}": [
        "defaults.settings.python: `python` is a setting of jax, tensorflow or torch, not of toy"
    ],
    "defaults: {engine: toi}\nruns: {a: {segments: 1, segment_minutes: 1}}": [
        "defaults.engine: found 'toi', allowed: {engines}; did you mean `toy`?"
    ],
    f"runs_table: [a.tsv]\nruns: {{demo: {RUN}}}": ['runs_table: found a list ["a.tsv"], allowed: the path of a file'],
    f"runs_table: ''\nruns: {{demo: {RUN}}}": ["runs_table: found '', allowed: the path of a file"],
    f"runs_table: Makefil\nruns: {{demo: {RUN}}}": [
        "runs_table: found 'Makefil', but there is no such file; did you mean `Makefile`?"
    ],
    f"runs_table: src\nruns: {{demo: {RUN}}}": [
        "runs_table: found 'src', which is a folder, allowed: the path of a file"
    ],
}


@pytest.mark.parametrize("written", WHOLE)
def test_a_mistake_in_the_file_is_named_in_one_line(written):
    assert mistakes(written) == [line.replace("{engines}", ENGINES) for line in WHOLE[written]]


def test_all_mistakes_come_at_once_in_the_order_of_the_file():
    lines = mistakes(
        """
        runs:
          first: {engine: toy, segmets: 4, segment_minutes: -1, settings: {sed: 2}}
          second b: {engine: torhc, segments: ten, segment_minutes: 1}
        defaults:
          keep: many
        rnus: {}
        """
    )

    assert lines == [
        "runs.first.settings: `goal` is missing; type for example `goal: 400`",
        "runs.first.segmets: unknown key; did you mean `segments`?",
        f"runs.first.segment_minutes: found -1, allowed: {LENGTH}",
        "runs.first.settings.sed: unknown key; did you mean `seed`?",
        f"runs.second b: found 'second b', allowed: {NAME}",
        f"runs.second b.engine: found 'torhc', allowed: {ENGINES}; did you mean `torch`?",
        "runs.second b.segments: found 'ten', allowed: a whole number from 1 to 99999",
        "defaults.keep: found 'many', allowed: a whole number, 1 or more (checkpoints)",
        "rnus: unknown key; did you mean `runs`?",
    ]


def test_a_missing_file_of_defaults_is_named_once_there(tmp_path):
    torch = "engine: torch, segments: 4, segment_minutes: 2, settings: {script: gone.py, goal: 1}"

    lines = mistakes(f"defaults: {{{torch}}}\nruns: {{a: {{}}, b: {{}}}}", tmp_path)

    assert lines == [f"defaults.settings.script: found 'gone.py', but there is no such file; looked in {tmp_path}"]


def test_yes_is_no_number_even_where_another_run_has_1():
    lines = mistakes(f"defaults: {{{GOOD}, {TOY}}}\nruns: {{a: {{threads: 1}}, b: {{threads: yes}}}}")

    assert lines == [f"runs.b.threads: found {YES}, allowed: a whole number, 1 or more"]


def test_long_values_are_shortened_in_messages():
    lines = mistakes(f"runs: {{demo: {{{GOOD}, {TOY}, threads: {'x' * 500}}}}}")

    assert lines == [f"runs.demo.threads: found '{'x' * 56}..., allowed: a whole number, 1 or more"]
