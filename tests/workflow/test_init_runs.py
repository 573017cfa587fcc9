"""The first hour of a user: a wheel, an empty folder, `unbroken init`, `unbroken run`, and a result."""

import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from support import gmx_systems
from support.dmtcp_here import PROGRAMS
from support.terminal import Terminal
from support.toyrun import until
from support.workdir import ROOT

pytestmark = pytest.mark.xdist_group("init_runs")  # one process, one `installed`

MELT = """units           lj
atom_style      atomic
lattice         fcc 0.8442
region          box block 0 8 0 8 0 8
create_box      1 box
create_atoms    1 box
mass            1 1.0
velocity        all create 3.0 87287 loop geom
pair_style      lj/cut 2.5
pair_coeff      1 1 1.0 1.0 2.5
neighbor        0.3 bin
neigh_modify    every 20 delay 0 check no
fix             1 all nve
dump            frames all atom 100 melt.lammpstrj
run             4000
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the programs of an environment that has unbroken from a wheel, and sees what is installed here."""
    wheels, fresh = tmp_path_factory.mktemp("wheels"), tmp_path_factory.mktemp("fresh")
    pip = [sys.executable, "-m", "pip", "--quiet"]
    wheel = [*pip, "wheel", "--no-index", "--no-deps", "--no-build-isolation", "--wheel-dir", str(wheels), str(ROOT)]
    subprocess.run(wheel, check=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", fresh], check=True)
    (folder,) = fresh.glob("lib/*/site-packages")
    (folder / "ours.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    (path,) = wheels.glob("unbroken-*.whl")
    install = [*pip, "--python", str(fresh / "bin/python"), "install", "--no-index", "--no-deps", "--force-reinstall"]
    subprocess.run([*install, str(path)], check=True)
    return fresh / "bin"


class Folder:
    """A user's folder, and what is typed in it."""

    def __init__(self, path: Path, programs: Path) -> None:
        self.path = path
        named = {
            "PATH": f"{programs}:{PROGRAMS}:{os.environ['PATH']}",
            "PYTHONPATH": "",
            "OMP_NUM_THREADS": "1",
        }
        self.environment = {**os.environ, **named}
        self.environment.pop("SNAKEMAKE_PROFILE", None)

    def start(self, line: str) -> subprocess.Popen[str]:
        both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.Popen(
            ["bash", "-c", f"set -o pipefail; {line}"],
            cwd=self.path,
            env=self.environment,
            start_new_session=True,
            **both,
        )

    def type(self, line: str) -> str:
        process = self.start(line)
        text, _ = process.communicate()
        assert process.returncode == 0, f"{line}\n{text}"
        return text

    def screen(self, line: str, columns: int) -> list[str]:
        """What stands on a terminal of 24 lines after the line was typed."""
        shown = {**self.environment, "UNBROKEN_CONSOLE": ""}
        with Terminal(["bash", "-c", line], self.path, shown, columns, 24) as terminal:
            assert terminal.wait() == 0, "\n".join(terminal.text)
            return terminal.shown

    def set(self, **numbers: float) -> None:
        """Keys of the config that a test cannot wait for."""
        config = self.path / "config/config.yaml"
        text = config.read_text()
        for key, value in numbers.items():
            text = re.sub(rf"(?m)^( +{key}: )\S+", rf"\g<1>{value}", text)
        config.write_text(text)

    def saved(self, run: str) -> int:
        return len(list((self.path / "results" / run / "checkpoints").glob("0*")))

    def kill_once_saved(self, run: str) -> None:
        """Starts the chain, and kills its whole session when there is a checkpoint."""
        driver = self.start("unbroken run")
        until(lambda: self.saved(run) or driver.poll() is not None)
        os.killpg(driver.pid, signal.SIGKILL)
        driver.communicate()
        assert self.saved(run)


@pytest.fixture
def folder(tmp_path: Path, installed: Path) -> Folder:
    path = tmp_path / "mine"
    path.mkdir()
    return Folder(path, installed)


def typed(said: str) -> str:
    """The last line's command."""
    line = said.splitlines()[-1]
    assert line.startswith("type: "), said
    return line.removeprefix("type: ")


@pytest.mark.slow
def test_the_screens_of_the_first_hour(folder: Folder) -> None:
    said = folder.screen("unbroken init toy", 80)
    first = folder.screen(typed("\n".join(said)), 64)
    again = folder.screen("snakemake", 80)

    assert said == [
        "config/config.yaml: written",
        "Snakefile: written",
        "profiles/default: written",
        "type: unbroken run",
    ]
    assert first[0] == "unbroken: snakemake --logger unbroken --snakefile Snakefile"
    assert first[1].startswith("Using workflow specific profile profiles/default")  # Snakemake's own, in two lines
    rehearsed = "unbroken: not rehearsed: demo; `unbroken rehearse demo` shows within minutes whether it resumes"
    assert "".join(first[3:5]) == rehearsed
    assert first[5] == "unbroken 0.1.0: 1 run: demo"
    assert re.fullmatch(
        r"(\d\d:\d\d:\d\d demo segment \d+ of 20: saved at \d+/300 steps, \d+ s of work)*"
        r"\d\d:\d\d:\d\d demo segment \d+ of 20: finished, 300/300 steps; results: results/demo/final",
        "".join(first[6:]),
    )
    assert again[2].startswith("Nothing to be done")
    for columns in (80, 64):
        status = folder.screen("unbroken status", columns)
        assert status[0].split() == ["run", "state", "progress", "segments", "checkpoint", "still"]
        assert re.fullmatch(r"demo  finished  (━+  )?300/300 steps  \d+/20 +\d+ s ago +0 s", status[1])
        assert status[2:] == ["demo: results: results/demo/final"]
        assert max(map(len, status)) <= columns
    assert (folder.path / "results/demo/final/trace.csv").is_file()


@pytest.mark.slow
def test_a_training_that_knows_nothing_of_us_is_changed_killed_and_comes_to_the_model_of_one_piece(
    folder: Folder,
) -> None:
    pytest.importorskip("torch", reason="missing: torch (pip install torch)")
    text = (ROOT / "examples/torch_tutorial/before.py").read_text()
    (folder.path / "train.py").write_text(text.replace("EPOCHS = 8", "EPOCHS = 3").replace("else 0.0", "else 0.01"))

    said = folder.type("unbroken init")
    patch = re.search(r"^to make these changes, type: (.*)$", said, re.MULTILINE)
    assert patch, said
    folder.type(patch[1])
    folder.set(segment_minutes=30, save_minutes=0.01)
    folder.kill_once_saved("train")
    end = folder.type(typed(said))
    folder.type("UNBROKEN_FOLDER=alone python train.py")

    assert (folder.path / "train.py").read_text().count("training") > 3
    assert "resuming from results/train/checkpoints/" in end
    alone = folder.path / "alone/final/model.pt"
    assert (folder.path / "results/train/final/model.pt").read_bytes() == alone.read_bytes()


@pytest.mark.slow
def test_the_whole_script_of_the_page(folder: Folder) -> None:
    pytest.importorskip("torch", reason="missing: torch (pip install torch)")
    (script,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs/start.md").read_text(), re.MULTILINE | re.DOTALL)
    (folder.path / "train.py").write_text(script)

    said = folder.type("unbroken init")
    folder.type(typed(said))

    assert "It needs these changes" not in said
    assert "goal: 20 " in (folder.path / "config/config.yaml").read_text()
    assert "20/20 epochs" in folder.type("unbroken status")


@pytest.mark.slow
@pytest.mark.needs("lammps")
def test_an_input_script_of_lammps(folder: Folder) -> None:
    (folder.path / "in.melt").write_text(MELT)

    said = folder.type("unbroken init")
    folder.set(segment_minutes=30, save_minutes=0.001)
    folder.kill_once_saved("melt")
    folder.type(typed(said))

    frames = (folder.path / "results/melt/final/melt.lammpstrj").read_text().split("ITEM: TIMESTEP\n")[1:]
    assert [int(frame.split()[0]) for frame in frames] == list(range(0, 4001, 100))


# A cooling in some seconds.
RAMP = (
    MELT.replace("atom_style      atomic", "atom_style      atomic\natom_modify     sort 0 0.0")
    .replace("0 8 0 8 0 8", "0 4 0 4 0 4")
    .replace("nve", "nvt temp 3.0 0.5 0.5")
    .replace("run             4000", "")
    + """\
dump            each all atom 4000 each.*.txt
fix             rows all print 100 "$(step) $(temp:%.15g)" file temp.dat screen no
fix             mean all ave/time 10 10 200 c_thermo_press file press.dat
thermo          200
run             20000
write_data      end.data
"""
)


@pytest.fixture(scope="module")
def lammps_in_pieces(tmp_path_factory: pytest.TempPathFactory, installed: Path) -> tuple[Path, Path]:
    """Run a script of LAMMPS as the pages say, killed once and in short segments; return its results, and one run's."""
    folder, whole, text = Folder(tmp_path_factory.mktemp("pieces"), installed), tmp_path_factory.mktemp("whole"), RAMP
    (whole / "in.melt").write_text(text)
    (folder.path / "in.melt").write_text(text)
    subprocess.run(["lmp", "-in", "in.melt", "-screen", "none"], cwd=whole, check=True)
    said = folder.type("unbroken init")
    folder.set(segment_minutes=0.07, segments=60, save_minutes=0.001)
    folder.kill_once_saved("melt")
    folder.type(typed(said))
    assert folder.saved("melt") > 1
    return folder.path / "results/melt/final", whole


@pytest.mark.slow
@pytest.mark.needs("lammps")
def test_a_ramp_of_lammps_and_its_tables_are_those_of_one_run(lammps_in_pieces: tuple[Path, Path]) -> None:
    final, whole = lammps_in_pieces

    for name in ("temp.dat", "press.dat"):
        rows, expected = ((each / name).read_text().splitlines() for each in (final, whole))
        assert [row.split()[0] for row in rows] == [row.split()[0] for row in expected]
    temperature = {row.split()[0]: float(row.split()[1]) for row in (final / "temp.dat").read_text().splitlines()[1:]}
    alone = {row.split()[0]: float(row.split()[1]) for row in (whole / "temp.dat").read_text().splitlines()[1:]}
    assert abs(temperature["15000"] - alone["15000"]) < 0.15
    steps = re.findall(r"(?m)^ *(\d+)(?: +[-.\d]+){5} *$", (final / "log.lammps").read_text())
    assert steps == [str(step) for step in range(0, 20001, 200)]


@pytest.mark.slow
@pytest.mark.needs("lammps")
def test_files_of_lammps_for_single_steps_are_in_the_results(lammps_in_pieces: tuple[Path, Path]) -> None:
    final, _ = lammps_in_pieces

    dumps = {f"each.{step}.txt" for step in range(0, 20001, 4000)}
    assert {"end.data", *dumps} <= {path.name for path in final.iterdir()}


@pytest.mark.slow
@pytest.mark.needs("gromacs")
def test_a_tpr(folder: Folder) -> None:
    shutil.copy(gmx_systems.water_tpr("nvt"), folder.path / "topol.tpr")

    said = folder.type("unbroken init")
    folder.set(segment_minutes=5, save_minutes=0.01)
    folder.type(typed(said))

    assert "5000/5000 steps" in folder.type("unbroken status")
    assert (folder.path / "results/topol/final/md.gro").is_file()


@pytest.mark.slow
def test_any_process(folder: Folder) -> None:
    shutil.copy(ROOT / "examples/dmtcp/orbit.py", folder.path)

    said = folder.type("unbroken init dmtcp -- python3 orbit.py 500 0.01")
    folder.set(segment_minutes=5, save_minutes=0.02)
    folder.type(typed(said))

    assert len((folder.path / "results/orbit/final/orbit.csv").read_text().splitlines()) >= 500


@pytest.mark.slow
def test_a_program_with_a_restart_file(folder: Folder) -> None:
    shutil.copy(ROOT / "examples/command/factors.sh", folder.path)

    said = folder.type("unbroken init command -- sh factors.sh 60 '{stop}'")
    config = folder.path / "config/config.yaml"
    text = config.read_text().replace("files: [] ", "files: [done.txt] ")
    config.write_text(text)
    folder.type(typed(said))

    assert "finished" in folder.type("unbroken status")


@pytest.mark.slow
def test_a_trainer_of_hugging_face_that_knows_nothing_of_us(folder: Folder) -> None:
    pytest.importorskip("transformers", reason="missing: transformers (pip install unbroken[adapters])")
    folder.environment["HF_HUB_OFFLINE"] = "1"
    shutil.copy(ROOT / "examples/torch_transformers/before.py", folder.path / "train.py")

    said = folder.type("unbroken init torch train.py 0.1")
    assert "    trainer.train(resume_from_checkpoint=unbroken.resume)" in said.splitlines()
    shutil.copy(ROOT / "examples/torch_transformers/train.py", folder.path / "train.py")
    folder.set(segment_minutes=30, save_minutes=0.001)
    folder.kill_once_saved("train")
    end = folder.type(typed(said))
    folder.type("mkdir ../whole; cp -r train.py config Snakefile profiles ../whole; cd ../whole; unbroken run")

    assert "resuming from results/train/checkpoints/" in end
    model = "results/train/final/model.safetensors"
    assert (folder.path / model).read_bytes() == (folder.path.parent / "whole" / model).read_bytes()


@pytest.mark.tensorflow
def test_a_fit_that_knows_nothing_of_us(folder: Folder) -> None:
    (folder.path / "train.py").write_text(
        "import keras\nimport numpy\n\n"
        "x = numpy.random.default_rng(0).random((256, 8)).astype('float32')\n"
        "y = x.sum(axis=1)\n"
        "model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16), keras.layers.Dense(1)])\n"
        "model.compile('adam', 'mse')\n"
        "history = model.fit(x, y, batch_size=16, epochs=5, verbose=2)\n"
        "print(history.history['loss'][-1])\n"
    )

    said = folder.type("unbroken init")
    folder.type("unbroken init --diff | patch")
    folder.set(segment_minutes=30, save_minutes=0.001)
    folder.kill_once_saved("train")
    end = folder.type(typed(said))

    assert "resuming from results/train/checkpoints/" in end
    assert (folder.path / "results/train/final/model.keras").is_file()
