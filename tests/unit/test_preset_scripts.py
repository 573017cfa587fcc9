"""The presets of R and Octave: which file of a script is its state, and what is refused."""

from pathlib import Path

import pytest
from support.command_jobs import command_run

from unbroken.cli.init_command import choose
from unbroken.errors import ConfigError
from unbroken.store.run import RunSpec

R = """
# saveRDS(x, "not this.rds")
data <- readRDS("data.rds")
state_file <- 'state.rds'
if (file.exists(state_file)) state <- readRDS(state_file)
saveRDS(state, state_file)
"""
OCTAVE = """
% save('not_this.mat', 'x')
if exist('state.mat', 'file'), load('state.mat'); end
save('-binary', 'state.mat', 'n');
"""
SCRIPTS = {"r": ("walk.R", R), "octave": ("walk.m", OCTAVE)}


def run_of(folder: Path, preset: str, more: str = "", without: str = "\n\n") -> RunSpec:
    name, text = SCRIPTS[preset]
    (folder / name).write_text(text.replace(without, "") + more)
    return command_run(base=folder, preset=preset, start=["Rscript" if preset == "r" else "octave-cli", name])


def refused(folder: Path, preset: str, more: str = "", without: str = "\n\n") -> str:
    with pytest.raises(ConfigError) as error:
        run_of(folder, preset, more, without)
    return "\n".join(error.value.mistakes)


def test_the_state_of_an_r_script_is_the_file_that_it_names(tmp_path: Path) -> None:
    (tmp_path / "data.rds").touch()

    found = run_of(tmp_path, "r").settings

    assert (found["files"], found["inputs"]) == (("state.rds",), ("walk.R", "data.rds"))


def test_the_state_of_an_octave_script_is_what_it_saves(tmp_path: Path) -> None:
    assert run_of(tmp_path, "octave").settings["files"] == ("state.mat",)


@pytest.mark.parametrize("preset", SCRIPTS)
def test_init_finds_the_script(tmp_path: Path, preset: str) -> None:
    name, text = SCRIPTS[preset]
    (tmp_path / name).write_text(text)

    settings = choose(tmp_path, []).starter.settings

    assert settings[0].startswith(f"preset: {preset}")


@pytest.mark.parametrize("more", ["x <- rnorm(3)", "set.seed(1); x <- sample(9)"])
def test_random_numbers_of_r_that_would_begin_again_are_refused(tmp_path: Path, more: str) -> None:
    assert "save .Random.seed with the state" in refused(tmp_path, "r", more)
    run_of(tmp_path, "r", f"{more}\nstate$seed <- .Random.seed\n")


@pytest.mark.parametrize("more", ["x = randn(3, 1);", "rng(1, 'twister'); x = rand();"])
def test_random_numbers_of_octave_that_would_begin_again_are_refused(tmp_path: Path, more: str) -> None:
    assert "save the state of rng() too" in refused(tmp_path, "octave", more)
    run_of(tmp_path, "octave", f"{more}\nrandom = rng();\n")
    run_of(tmp_path, "octave", f"{more}\nv = rand('twister');\n")


def test_a_script_that_never_reads_its_state_is_refused(tmp_path: Path) -> None:
    reading = R[R.index("data <-") : R.index("saveRDS(state,")]
    assert "it never reads what it saves" in refused(tmp_path, "r", "state_file <- 'a.rds'\n", reading)
    loading = "if exist('state.mat', 'file'), load('state.mat'); end\n"
    assert "it never loads" in refused(tmp_path, "octave", "", loading)


def test_a_script_that_names_no_file_is_refused(tmp_path: Path) -> None:
    naming = R[R.index("data <-") : R.index("if (")]
    assert "type `files: [NAME]`" in refused(tmp_path, "r", "", naming)
    assert "after `save`" in refused(tmp_path, "octave", "save(name)", "save('-binary', 'state.mat', 'n');\n")
