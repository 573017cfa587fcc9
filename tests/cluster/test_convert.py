"""Scripts of the bed, first as they are given to sbatch on a real cluster, then converted: the same final result.

What is scaled down, and what stands for a program that is not here, is the text that `SCALED` puts in its place; then
come the answers to what the conversion asked.  docs/convert.md has both in a table.
"""

import re
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

import pytest
from cluster.lab import Cluster
from support import gmx_systems
from support.dmtcp_here import PROGRAMS
from support.site_jobs import LAMMPS, TRAINING, WALKER, answer
from support.workdir import ROOT, WorkDir

from unbroken.runs.outcome import Outcome

pytestmark = pytest.mark.slow

PATIENCE_SECONDS = 600.0
SCRIPTS = ROOT / "tests" / "site_scripts"
MODULES_INIT = "/usr/share/modules/init/bash"
SCALED: Mapping[str, Mapping[str, str]] = {
    "afterok_chain": {"seq 1 6": "seq 1 3", "08:00:00": "5", "gpu:a100:1": "gpu:fake:1", "=8": "=1", "60G": "200M"},
    "cp2k_timeout": {
        "--nodes=2 --ntasks-per-node=48 --time=24:00:00 --exclusive": "--ntasks=1 --time=5",
        ' --constraint="[icelake|milan]"': "",
        "/scratch/$USER": "$SCRATCH",
        "apptainer exec --bind /scratch cp2k.sif cp2k.psmp": '"$SCRATCH/cp2k.psmp"',
    },
    "dmtcp_loop": {"4:00:00": "5"},
    "gromacs_array": {
        "--constraint=cascadelake": "--mem=500M",
        "--ntasks=56": "--ntasks=2",
        "12:00:00": "5",
        "pmi2": "pmix",
        "/opt/site/gromacs/2020.3/bin/": "",
        # Balanced by its clock, no run equals another of the same script.
        "-dlb yes": "-dlb no -reprod",
    },
    "keras_array": {
        "1-10%1": "1-3%1",
        "00:10:00": "5",
        "10Gb": "200M",
        "gpu:1": "gpu:fake:1",
        "source activate tf_gpu": "source tf_gpu/bin/activate",
        "500 *": "100 *",
    },
    "lammps_resubmit": {
        "--account=phys7 --qos=normal": "--mem=500M",
        "--ntasks=64 --time=1-00:00:00 --mail-type=END,FAIL --mail-user=someone@example.org": "--ntasks=2 --time=5",
        "module restore": "module load",
        "mpirun -np $SLURM_NTASKS": "srun --mpi=pmix -n $SLURM_NTASKS",
    },
    "torch_requeue": {
        "--gpus-per-task=1": "--partition=short",
        "--cpus-per-task=4": "--cpus-per-task=1",
        "16G": "1G",
        "00:15:00": "5",
        "B:TERM@300": "B:TERM@30",
        "conda activate pytorch": "source pytorch/bin/activate",
    },
}
MODULES = (
    "cuda/10.2",
    "gcc/7.3.0",
    "openmpi/4.0.5",
    "gromacs/2020.3-gpu-mpi",
    "lammps",
    "miniconda3",
    "anaconda/3",
    "cuda/11.7",
)


@pytest.fixture
def site(slurm_work: WorkDir) -> WorkDir:
    """A working directory on the cluster with modules, a scratch folder and the disk of a node."""
    for name in MODULES:
        slurm_work.write(f"modulefiles/{name}", "#%Module\n")
    more = {"MODULEPATH": str(slurm_work.root / "modulefiles"), "SCRATCH": str(slurm_work.root / "scratch")}
    more |= {"SLURM_TMPDIR": str(slurm_work.root / "disk"), "OMPI_MCA_mpi_yield_when_idle": "1"}
    slurm_work.added_environment = {**slurm_work.added_environment, **more}
    for name in ("scratch", "disk", "alone"):
        (slurm_work.root / name).mkdir()
    return slurm_work


def put(site: WorkDir, stem: str, **files: str) -> None:
    """The script, scaled down, and its files: once where it runs by itself, once where it is converted."""
    text = (SCRIPTS / f"{stem}.sh").read_text()
    for old, new in SCALED[stem].items():
        assert old in text, old
        text = text.replace(old, new)
    for name, content in {f"{stem}.sh": text, **files}.items():
        for folder in ("", "alone/"):
            site.write(f"{folder}{name}", content)


def venv(site: WorkDir, name: str) -> None:
    """A Python environment with the packages of ours."""
    ours = sysconfig.get_path("purelib")
    for folder in (site.root, site.root / "alone"):
        words = [sys.executable, "-m", "venv", "--without-pip", str(folder / name)]
        subprocess.run(words, check=True)
        (packages,) = (folder / name).glob("lib/python*/site-packages")
        (packages / "ours.pth").write_text(f"{ours}\n")


def by_itself(site: WorkDir, cluster: Cluster, stem: str, is_submitter: bool = False) -> Path:
    """Runs the script as its user does, until nothing of it is left in the queue."""
    folder = site.root / "alone"
    # A batch script is no login shell: where sites define `module` is their own matter.
    environment = {**site.environment(), "BASH_ENV": MODULES_INIT}
    words = ["bash", f"{stem}.sh"] if is_submitter else ["sbatch", f"{stem}.sh"]
    subprocess.run(words, cwd=folder, env=environment, check=True, capture_output=True, stdin=subprocess.DEVNULL)
    cluster.wait_until(lambda: not cluster.jobs("pending,running,completing"), PATIENCE_SECONDS)
    return folder


def converted(site: WorkDir, stem: str, minutes: float, start: tuple[str, str] = ("", ""), **answers: str) -> None:
    """Converts the script, types the answers, cuts the run into segments of so many minutes, and runs it to its end."""
    done = site.unbroken("convert", f"{stem}.sh")
    assert done.code == 0, done.text
    config = site.root / "config" / "config.yaml"
    answer(config, **answers)
    text = config.read_text().replace(*start) if start[0] else config.read_text()
    config.write_text(re.sub(r"segment_minutes: \S+", f"segment_minutes: {minutes}", text))
    made = site.start().wait(PATIENCE_SECONDS)
    assert made.code == 0, made.text


def pauses(site: WorkDir, run: str) -> int:
    """How many segments ended before the goal and left a checkpoint; the run has reached it in the end."""
    outcomes = [attempt.outcome for attempt in site.history(run)]
    assert outcomes[-1] is Outcome.FINISHED
    return outcomes.count(Outcome.PAUSED)


def test_an_array_whose_goal_grows_comes_to_the_state_of_its_last_task(site: WorkDir, cluster: Cluster) -> None:
    put(site, "keras_array", **{"train.py": WALKER})
    venv(site, "tf_gpu")

    alone = by_itself(site, cluster, "keras_array")
    answers = {"files": "[state.txt]", "saved_by": "rename", "exit_paused": "[0]"}
    converted(site, "keras_array", 0.2, **answers, progress_file="state.txt", progress_pattern=r"'^(\d+) '")

    assert (alone / "state.txt").read_text().startswith("300 ")
    assert site.final("train") == {"state.txt": (alone / "state.txt").read_bytes()}
    assert pauses(site, "train") >= 1


def test_a_chain_by_dependency_comes_to_the_state_of_its_last_job(site: WorkDir, cluster: Cluster) -> None:
    job = "#!/bin/bash\n#SBATCH -p gpu\npython train.py 300 --file state.txt --at-most 100 $@\n"
    put(site, "afterok_chain", **{"train.sbatch": job, "train.py": WALKER})

    alone = by_itself(site, cluster, "afterok_chain", is_submitter=True)
    answers = {"files": "[state.txt]", "saved_by": "rename", "goal": "300", "exit_paused": "[0]"}
    converted(site, "afterok_chain", 1, **answers, progress_file="state.txt", progress_pattern=r"'^(\d+) '")

    assert (alone / "state.txt").read_text().startswith("300 ")
    assert site.final("afterok_chain") == {"state.txt": (alone / "state.txt").read_bytes()}
    assert pauses(site, "afterok_chain") == 2


def test_a_script_with_a_scratch_copy_comes_to_the_same_restart_file(site: WorkDir, cluster: Cluster) -> None:
    """A walker with CP2K's options and file names stands for CP2K."""
    put(site, "cp2k_timeout", **{"input/aimd.inp": "300 12345\n"})
    (site.root / "alone" / "results").mkdir()
    program = site.write("scratch/cp2k.psmp", f"#!{sys.executable}\n{WALKER}")
    program.chmod(0o755)

    alone = by_itself(site, cluster, "cp2k_timeout")
    converted(site, "cp2k_timeout", 0.2, saved_by="rename")

    final = (alone / "results" / "aimd-1.restart").read_bytes()
    assert final.startswith(b"300 ")
    assert site.final("cp2k_timeout") == {"aimd-1.restart": final}
    assert pauses(site, "cp2k_timeout") >= 1


def test_a_training_that_is_requeued_comes_to_the_same_model(site: WorkDir, cluster: Cluster) -> None:
    put(site, "torch_requeue", **{"main.py": TRAINING})
    venv(site, "pytorch")
    (site.root / "numbers.txt").write_text("".join(f"{number % 17} {number % 5}\n" for number in range(512)))
    words = ["tar", "-C", str(site.root), "-cf", str(site.root / "scratch" / "digits.tar"), "numbers.txt"]
    subprocess.run(words, check=True)

    by_itself(site, cluster, "torch_requeue")
    elsewhere = ('"$SCRATCH"/logs/"{run}"', "out")
    converted(
        site, "torch_requeue", 0.4, elsewhere, files="[out/state.pt]", saved_by="rename", final_files="[out/model.txt]"
    )

    (model,) = (site.root / "scratch" / "logs").glob("*/model.txt")
    assert model.read_text().count("0x") == 49
    assert (site.places("torch_requeue").final / "out" / "model.txt").read_bytes() == model.read_bytes()
    assert pauses(site, "torch_requeue") >= 1


@pytest.mark.needs("lammps", "libpmix-dev")
@pytest.mark.usefixtures("pmix")
def test_a_script_of_lammps_comes_to_the_same_restart_file(site: WorkDir, cluster: Cluster) -> None:
    start = LAMMPS.replace(
        "@begin@", "create_box 1 box\ncreate_atoms 1 box\nmass 1 1.0\nvelocity all create 3.0 87287 loop geom"
    )
    resume = re.sub("lattice.*\nregion.*\n", "", LAMMPS).replace("@begin@", "read_restart ${rst}")
    put(site, "lammps_resubmit", **{"start.in": start, "resume.in": resume})

    alone = by_itself(site, cluster, "lammps_resubmit")
    converted(site, "lammps_resubmit", 0.4)

    final = (alone / "restart.4000.bin").read_bytes()
    assert site.final("melt") == {"restart.4000.bin": final}
    assert pauses(site, "melt") >= 1


@pytest.mark.needs("gromacs", "openmpi-bin", "libpmix-dev")
@pytest.mark.usefixtures("pmix")
def test_an_array_of_gromacs_comes_to_the_same_structure(site: WorkDir, cluster: Cluster) -> None:
    put(site, "gromacs_array", **{"GMXRC.bash": "export GMXRC_WAS_READ=1\n"})
    tpr = gmx_systems.water_tpr("for_convert", nsteps=gmx_systems.steps_in(40, least=3000))
    for folder in (site.root, site.root / "alone"):
        (folder / "prod.tpr").write_bytes(tpr.read_bytes())

    alone = by_itself(site, cluster, "gromacs_array")
    converted(site, "gromacs_array", 0.75)

    final = site.places("prod").final
    assert (final / "md.gro").read_bytes() == (alone / "confout.gro").read_bytes()
    assert pauses(site, "prod") >= 1


def test_a_loop_of_dmtcp_comes_to_the_table_of_its_program(site: WorkDir, cluster: Cluster) -> None:
    """Compared with the program in a job of its own: the stand-in does not take all that the script says."""
    orbit = (ROOT / "examples" / "dmtcp" / "orbit.py").read_text()
    read = "import sys\n\nsys.argv[1:] = open(sys.argv[1]).read().split()\n"
    put(site, "dmtcp_loop", **{"solve": f"#!{sys.executable}\n{read}{orbit}", "in.dat": "600 0.1\n"})
    site.write("modulefiles/dmtcp/2.6.0", f"#%Module\nprepend-path PATH {PROGRAMS}\n")
    for folder in (site.root, site.root / "alone"):
        (folder / "solve").chmod(0o755)

    cluster.sbatch("./solve in.dat", "--time=5", cwd=site.root / "alone")
    cluster.wait_until(lambda: not cluster.jobs("pending,running,completing"), PATIENCE_SECONDS)
    converted(site, "dmtcp_loop", 0.5)

    final = site.places("dmtcp_loop").final
    assert (final / "orbit.csv").read_bytes() == (site.root / "alone" / "orbit.csv").read_bytes()
    assert pauses(site, "dmtcp_loop") >= 1
