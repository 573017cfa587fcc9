"""Scripts of the bed, first as they are given to sbatch on a real cluster, then converted: the same final result.

What is scaled down, and what stands for a program that is not here, is the text that `SCALED` puts in its place; then
come the options and settings that say what the script does not: which files are kept, and when it is done.
"""

import re
import subprocess
import sys
from collections.abc import Mapping

import pytest
from cluster.site_scripts import Site
from support import cp2k, gmx_systems
from support.dmtcp_here import PROGRAMS, REAL
from support.site_jobs import KERAS, LAMMPS, TRAINING, WALKER
from support.workdir import ROOT

pytestmark = pytest.mark.slow

SCALED: Mapping[str, Mapping[str, str]] = {
    "afterok_chain": {"seq 1 6": "seq 1 3", "08:00:00": "5", "gpu:a100:1": "gpu:fake:1", "=8": "=1", "60G": "200M"},
    "cp2k_timeout": {
        "--nodes=2 --ntasks-per-node=48 --time=24:00:00 --exclusive": "--ntasks=1 --time=9",
        ' --constraint="[icelake|milan]"': "",
        "/scratch/$USER": "$SCRATCH",
        "srun apptainer exec --bind /scratch cp2k.sif": "srun --mpi=pmix",
        "/opt/cp2k/data": "/usr/share/cp2k",
    },
    "dmtcp_loop": {"4:00:00": "5", "B:USR1@600": "B:USR1@240"},
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


def put(site: Site, stem: str, **files: str) -> None:
    site.put(stem, SCALED[stem], **files)


def test_an_array_whose_goal_grows_comes_to_the_state_of_its_last_task(site: Site) -> None:
    put(site, "keras_array", **{"train.py": WALKER})
    site.venv("tf_gpu")

    alone = site.by_itself("keras_array")
    site.converted("keras_array", 0.8, files="[state.txt]")

    assert (alone / "state.txt").read_text().startswith("300 ")
    assert site.work.final("train")["state.txt"] == (alone / "state.txt").read_bytes()
    assert site.pauses("train") >= 1


@pytest.mark.tensorflow
def test_an_array_of_keras_comes_to_the_weights_of_its_last_task(site: Site) -> None:
    keras = pytest.importorskip("keras", reason="missing: keras (make tensorflow-tests)")
    put(site, "keras_array", **{"train.py": KERAS})
    site.venv("tf_gpu")

    alone = site.by_itself("keras_array")
    site.converted("keras_array", 1, files="['model_{progress}.keras']")

    whole = keras.saving.load_model(alone / "model_000300.keras")
    pieces = keras.saving.load_model(site.final("train") / "model_000300.keras")
    assert int(whole.optimizer.iterations) == int(pieces.optimizer.iterations) == 300
    assert [each.tobytes() for each in pieces.get_weights()] == [each.tobytes() for each in whole.get_weights()]
    assert site.pauses("train") >= 1


def test_a_chain_by_dependency_comes_to_the_state_of_its_last_job(site: Site) -> None:
    job = "#!/bin/bash\n#SBATCH -p gpu\npython train.py 300 --file state.txt --at-most 100 $@\n"
    put(site, "afterok_chain", **{"train.sbatch": job, "train.py": WALKER})

    alone = site.by_itself("afterok_chain", is_submitter=True)
    options = r"--keep state.txt --goal 300 --progress 'state.txt:^(\d+) '"
    folder = site.with_exec("afterok_chain", 1, options)

    assert (alone / "state.txt").read_text().startswith("300 ")
    assert (folder / "state.txt").read_bytes() == (alone / "state.txt").read_bytes()
    assert site.pauses("afterok_chain") == 2


@pytest.mark.needs("cp2k", "libpmix-dev")
@pytest.mark.usefixtures("pmix")
def test_a_script_with_a_scratch_copy_comes_to_the_same_restart_file(site: Site) -> None:
    """CP2K computes in other units than it writes, so that the last of its 17 digits differ after a restart."""
    atoms = cp2k.argon(4)
    steps = cp2k.steps_in(site.root / "trial", atoms, 35, least=1500)
    put(site, "cp2k_timeout", **{"input/aimd.inp": cp2k.input_text(steps), "input/argon.xyz": atoms})
    for folder in (site.root, site.alone):
        (folder / "results").mkdir()

    alone = site.by_itself("cp2k_timeout")
    folder = site.with_exec("cp2k_timeout", 0.25)

    whole = cp2k.state(alone / "results" / "aimd-1.restart")
    pieces = cp2k.state(folder / "results" / "aimd-1.restart")
    assert pieces.step == whole.step == steps - cp2k.SAVED_EVERY
    assert len(whole.positions) == 3 * 256
    assert pieces.positions == pytest.approx(whole.positions, rel=0, abs=1e-9)
    assert site.pauses("cp2k_timeout") >= 1


def test_a_training_that_is_requeued_comes_to_the_same_model(site: Site) -> None:
    put(site, "torch_requeue", **{"main.py": TRAINING})
    site.venv("pytorch")
    (site.root / "numbers.txt").write_text("".join(f"{number % 17} {number % 5}\n" for number in range(512)))
    words = ["tar", "-C", str(site.root), "-cf", str(site.scratch / "digits.tar"), "numbers.txt"]
    subprocess.run(words, check=True)

    site.by_itself("torch_requeue")
    folder = site.with_exec("torch_requeue", 0.4, "--keep out/state.pt", ('"$SCRATCH/logs/$SLURM_JOB_ID"', "out"))

    (model,) = (site.scratch / "logs").glob("*/model.txt")
    assert model.read_text().count("0x") == 49
    assert (folder / "out" / "model.txt").read_bytes() == model.read_bytes()
    assert site.pauses("torch_requeue") >= 1


@pytest.mark.needs("lammps", "libpmix-dev")
@pytest.mark.usefixtures("pmix")
def test_a_script_of_lammps_comes_to_the_same_restart_file(site: Site) -> None:
    start = LAMMPS.replace(
        "@begin@", "create_box 1 box\ncreate_atoms 1 box\nmass 1 1.0\nvelocity all create 3.0 87287 loop geom"
    )
    resume = re.sub("lattice.*\nregion.*\n", "", LAMMPS).replace("@begin@", "read_restart ${rst}")
    put(site, "lammps_resubmit", **{"start.in": start, "resume.in": resume})

    alone = site.by_itself("lammps_resubmit")
    folder = site.with_exec("lammps_resubmit", 0.4)

    assert (folder / "restart.4000.bin").read_bytes() == (alone / "restart.4000.bin").read_bytes()
    assert site.pauses("melt") >= 1


@pytest.mark.needs("gromacs", "openmpi-bin", "libpmix-dev")
@pytest.mark.usefixtures("pmix")
def test_an_array_of_gromacs_comes_to_the_same_structure(site: Site) -> None:
    put(site, "gromacs_array", **{"GMXRC.bash": "export GMXRC_WAS_READ=1\n"})
    site.module("gromacs/2020.3-gpu-mpi", site.first_mdrun_is_cut("gmx_mpi", 2000))
    tpr = gmx_systems.water_tpr("for_convert", nsteps=5000)
    for folder in (site.root, site.alone):
        (folder / "prod.tpr").write_bytes(tpr.read_bytes())

    alone = site.by_itself("gromacs_array")
    site.converted("gromacs_array", 2)

    final = site.final("prod")
    assert (final / "md.gro").read_bytes() == (alone / "confout.gro").read_bytes()
    assert site.pauses("prod") >= 1


def test_a_loop_of_dmtcp_comes_to_the_table_of_its_program(site: Site) -> None:
    """The stand-in for DMTCP does not take all that the script says: there it is the program in a job of its own."""
    orbit = (ROOT / "examples" / "dmtcp" / "orbit.py").read_text()
    read = "import sys\n\nsys.argv[1:] = open(sys.argv[1]).read().split()\n"
    put(site, "dmtcp_loop", **{"solve": f"#!{sys.executable}\n{read}{orbit}", "in.dat": "900 0.1\n"})
    site.module("dmtcp/2.6.0", PROGRAMS)
    for folder in (site.root, site.alone):
        (folder / "solve").chmod(0o755)

    if REAL:
        site.by_itself("dmtcp_loop")
        assert list(site.alone.glob("ckpt_*.dmtcp"))
    else:
        site.cluster.sbatch("./solve in.dat", "--time=5", cwd=site.alone)
        site.until_idle()
    site.converted("dmtcp_loop", 0.5)

    final = site.final("dmtcp_loop")
    assert (final / "orbit.csv").read_bytes() == (site.alone / "orbit.csv").read_bytes()
    assert site.pauses("dmtcp_loop") >= 1
