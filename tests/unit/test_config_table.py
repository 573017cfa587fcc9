"""The table of runs: typed like the schemas, its mistakes named by line and column."""

import pytest

from unbroken.config.load import read_runs
from unbroken.engines.found import known_schemas
from unbroken.errors import ConfigError

SCHEMAS = known_schemas()
DEFAULTS = {"engine": "toy", "segments": 4, "segment_minutes": 2, "settings": {"goal": 9}}
NAME = "a letter or digit, then up to 99 letters, digits, dots, underscores and hyphens"
COLUMNS = (
    "run, engine, segments, segment_minutes, place, note, threads, tasks, nodes, mem_mb, memory_growth, "
    "gpus, partition, account, qos, constraint, gpu_type, slurm_extra, keep, milestone_every, copies, save_minutes, "
    "mtbf_hours, stall_minutes, first_margin_seconds, attempts_without_progress, modules, enter, "
    "container, container_options, conda, venv, environment, "
)


def read(folder, text, **config):
    """Runs of a table written with `|` for the tab."""
    path = folder / "runs.tsv"
    path.write_bytes(text.replace("|", "\t").encode() if isinstance(text, str) else text)
    return read_runs({"defaults": DEFAULTS, **config, "runs_table": "runs.tsv"}, SCHEMAS, folder)


def mistakes(folder, text, **config):
    with pytest.raises(ConfigError) as error:
        read(folder, text, **config)
    return error.value.mistakes


def test_cells_get_the_types_of_the_schema(tmp_path):
    (tmp_path / "train.py").touch()
    header = (
        "run|engine|segments|segment_minutes|note|stall_minutes|modules|settings.script|settings.goal|settings.args\n"
    )
    row = '007|torch|12|2.5|12|null|["gcc/12"]|train.py|1e2|["--lr", 0.1, 2]\n'

    (run,) = read(tmp_path, header + row, defaults=None)

    assert (run.name, run.segments, run.segment_minutes, run.note) == ("007", 12, 2.5, "12")
    assert (run.stall_minutes, run.environment.modules) == (None, ("gcc/12",))
    assert (run.settings["script"], run.settings["goal"], run.settings["args"]) == ("train.py", 100, ("--lr", 0.1, 2))


def test_a_cell_may_hold_the_least_and_the_most_of_a_segment(tmp_path):
    one, two = read(tmp_path, 'run|segment_minutes\na|30\nb|{"at_least": 1, "at_most": 2.5}\n')

    assert (one.segment_minutes, one.least_minutes) == (30, None)
    assert (two.segment_minutes, two.least_minutes) == (2.5, 1)


def test_a_row_stands_above_defaults_and_an_empty_cell_means_them(tmp_path):
    first, second = read(tmp_path, "run|segments|keep|settings.seed\na|7||\nb||5|3\n")

    assert (first.segments, first.keep, first.settings) == (
        7,
        2,
        {"goal": 9, "seed": 0, "step_seconds": 0.01, "save_steps": 0},
    )
    assert (second.segments, second.keep, second.settings["seed"]) == (4, 5, 3)


def test_runs_of_the_file_and_of_the_table_stand_in_the_order_of_the_file(tmp_path):
    runs = read(tmp_path, "run\nb\nc\n", runs={"z": {}})

    assert [run.name for run in runs] == ["z", "b", "c"]


@pytest.mark.parametrize(
    "text",
    [
        "run|note\r\na|x\r\n\r\nb|y\r\n",
        "\ufeffrun|note\na|x\nb|y",
        'run|note\n a | x \n"b"|"y"\n||\n'.replace("||", "|"),
        "run|note\na|x\n\n\nb|y\n\n",
    ],
    ids=["windows", "byte order mark", "spaces and quotes", "empty lines"],
)
def test_what_spreadsheets_write_is_read(tmp_path, text):
    assert [(run.name, run.note) for run in read(tmp_path, text)] == [("a", "x"), ("b", "y")]


def test_lists_may_be_quoted_as_spreadsheets_do(tmp_path):
    assert read(tmp_path, 'run|modules\na|"[""gcc/12"", ""cuda""]"\n')[0].environment.modules == ("gcc/12", "cuda")


def test_a_large_whole_number_keeps_every_digit(tmp_path):
    assert read(tmp_path, "run|settings.seed\na|12345678901234567891\n")[0].settings["seed"] == 12345678901234567891


LENGTH = "a number above 0, or {at_least: 60, at_most: 480}"
WRONG = {  # table: all that is said
    "run|segments\na|ten\n": ["runs.tsv line 2, column segments: found 'ten', allowed: a whole number from 1 to 99999"],
    "run|segments\na|3\n\nb|2.5\n": [
        "runs.tsv line 4, column segments: found 2.5, allowed: a whole number from 1 to 99999"
    ],
    'run|note|segments\na|"two\nlines"|3\nb||0\n': [
        "runs.tsv line 4, column segments: found 0, allowed: a whole number from 1 to 99999"
    ],
    "run|segment_minutes\na|1e999\nb|nan\n": [
        f"runs.tsv line 2, column segment_minutes: found '1e999', allowed: {LENGTH}",
        f"runs.tsv line 3, column segment_minutes: found 'nan', allowed: {LENGTH}",
    ],
    "run|place\na|gqu\n": ["runs.tsv line 2, column place: found 'gqu', allowed: short or gpu; did you mean `gpu`?"],
    "run|modules\na|gcc\n": [
        "runs.tsv line 2, column modules: found 'gcc', allowed: a list, each item text that is not empty; "
        'type ["gcc"]'
    ],
    "run|modules\na|[1]\n": [
        'runs.tsv line 2, column modules item 1: found 1, allowed: text that is not empty; type "1", with the quotes'
    ],
    "run|settings.seed\na|x\n": ["runs.tsv line 2, column settings.seed: found 'x', allowed: a whole number"],
    "run|settings.python\na|\nb|x\n": [
        "runs.tsv line 3, column settings.python: `python` is a setting of jax, tensorflow or torch, not of toy"
    ],
    "run|segmets\na|3\n": ["runs.tsv line 1, column segmets: unknown key; did you mean `segments`?"],
    "run|settings.sed\na|3\n": ["runs.tsv line 1, column settings.sed: unknown key; did you mean `settings.seed`?"],
    "run|seed\na|3\n": ["runs.tsv line 1, column seed: `seed` is a setting; type `settings.seed`"],
    "run|settings\na|3\n": [
        "runs.tsv line 1, column settings: `settings` is no column; type one column for each setting, `settings.<key>`"
    ],
    "run|keep|keep\na|3|3\n": ["runs.tsv line 1, column keep: stands here twice; remove one"],
    "runn|segments|kep\na|3|3\n": [
        "runs.tsv line 1, column runn: unknown key; did you mean `run`?",
        "runs.tsv line 1, column kep: unknown key; did you mean `keep`?",
        "runs.tsv line 1, column run: is missing; add it, it holds the names of the runs",
    ],
    "run,segments\na,3\n": ["runs.tsv line 1, columns: found commas, allowed: tabs between the columns"],
    "run|segments\na b|3\n|4\n": [
        f"runs.tsv line 2, column run: found 'a b', allowed: {NAME}",
        f"runs.tsv line 3, column run: found nothing, allowed: {NAME}",
    ],
    "run|segments\na|3\na|3\n": [
        "runs.tsv line 3, column run: 'a' is already the name of runs.tsv line 2; type another"
    ],
    "run|segments\na|3\nb|3|4\nc|3||\n": [
        "runs.tsv line 3: found 3 cells, allowed: 2, one for each column",
        "runs.tsv line 4: found 4 cells, allowed: 2, one for each column",
    ],
    'run|note\na|x\nb|"y\n': [
        "runs.tsv line 3: found a quotation mark that nothing closes, allowed: pairs of them around a whole cell"
    ],
    "": ["runs.tsv: found nothing, allowed: a line of column names, `run` among them, then one row a run"],
    "run|note\n": [
        "runs: found none, allowed: one run or more; type one under `runs:` or name a table with `runs_table:`"
    ],
    b"run\tnote\na\tgr\xfc\n": ["runs.tsv line 2: found bytes that are not UTF-8, allowed: text saved as UTF-8"],
}


@pytest.mark.parametrize("text", WRONG)
def test_a_mistake_in_the_table_is_named_by_line_and_column(tmp_path, text):
    assert mistakes(tmp_path, text) == WRONG[text]


def test_a_column_without_a_name_is_named_by_its_number(tmp_path):
    (line,) = mistakes(tmp_path, "run|\na|3\n")

    assert line.startswith(f"runs.tsv line 1, column 2: found no name, allowed: {COLUMNS}")


def test_a_missing_column_is_named_once_and_an_empty_cell_by_its_line(tmp_path):
    lines = mistakes(tmp_path, "run|segments\na|3\nb|\nc|\n", defaults={"engine": "toy"})

    assert lines == [
        "runs.tsv: no column `segment_minutes`; add it, or type `segment_minutes: 60` under `defaults`",
        "runs.tsv: no column `settings.goal`; add it, or type `goal: 400` under `defaults.settings`",
        "runs.tsv line 3, column segments: found nothing, allowed: a whole number from 1 to 99999",
        "runs.tsv line 4, column segments: found nothing, allowed: a whole number from 1 to 99999",
    ]


def test_a_name_of_the_file_may_not_stand_in_the_table_too(tmp_path):
    lines = mistakes(tmp_path, "run\na\nz\n", runs={"z": {}})

    assert lines == ["runs.tsv line 3, column run: 'z' is already the name of runs.z; type another"]


def test_a_missing_file_named_in_a_row_is_found(tmp_path):
    (tmp_path / "train.py").touch()
    torch = {**DEFAULTS, "engine": "torch", "settings": {"goal": 1}}

    lines = mistakes(tmp_path, "run|settings.script\na|train.py\nb|trian.py\n", defaults=torch)

    assert lines == [
        "runs.tsv line 3, column settings.script: found 'trian.py', but there is no such file; did you mean `train.py`?"
    ]


def test_the_table_is_looked_up_from_the_base(tmp_path):
    with pytest.raises(ConfigError) as error:
        read_runs({"runs_table": "config/runs.tsv"}, SCHEMAS, tmp_path)

    assert error.value.mistakes == [
        f"runs_table: found 'config/runs.tsv', but there is no such file; looked in {tmp_path}/config"
    ]


@pytest.mark.process
def test_ten_thousand_rows_are_read_and_each_of_their_mistakes_is_named(tmp_path):
    numbers = range(1, 10_001)

    runs = read(tmp_path, "run|segments|settings.seed\n" + "".join(f"r{n}|{n}|{n}\n" for n in numbers))
    lines = mistakes(tmp_path, "run|segments\n" + "".join(f"r{n}|-{n}\n" for n in numbers))

    assert [(run.name, run.segments, run.settings["seed"]) for run in runs] == [(f"r{n}", n, n) for n in numbers]
    assert lines == [
        f"runs.tsv line {n + 1}, column segments: found -{n}, allowed: a whole number from 1 to 99999" for n in numbers
    ]
