"""More kinds of scripts, written after public ones: by themselves on a real cluster, and converted; the same results.

As in test_convert.py, `SCALED` is what is scaled down, or stands for what is not here.
"""

import re
import shutil
import socket
import sys
from collections.abc import Mapping

import pytest
from cluster.site_scripts import Site
from support import espresso, gmx_systems
from support.dmtcp_here import PROGRAMS, REAL
from support.images import apptainer, make_python_image
from support.site_jobs import LAMMPS
from support.site_programs import EPOCHS, LIGHTNING, NAMD, PMEMD, R_WALK, RANKS, SIMULATE, VASP
from support.workdir import ROOT

pytestmark = pytest.mark.slow

MAIL = "#SBATCH --mail-user=someone@example.org\n#SBATCH --mail-type=ALL\n"
SCALED: Mapping[str, Mapping[str, str]] = {
    "amber_parts": {"2-00:00:00": "5", "gpus-per-task=1": "gres=gpu:fake:1", "/opt/amber24": "@scratch@/amber24"},
    "chain_of_jobs": {"06:00:00": "5", "--cpus-per-task=4": "--cpus-per-task=1"},
    "dmtcp_timeout": {"100mb": "300mb", "00:01:00": "3", "timeout 50": "timeout 40"},
    "espresso_stdin": {
        "#SBATCH -p labs\n#SBATCH --reservation=abinitio\n": "",
        "-n 10": "-n 1",
        "ntasks-per-node=10": "ntasks-per-node=1",
        "12:00:00": "9",
        "srun": "srun --mpi=pmix",
    },
    "gromacs_grompp": {
        "-p cascade": "-p gpu",
        "gres=gpu:1": "gres=gpu:fake:1",
        "cpus-per-task=20": "cpus-per-task=2",
        "24:00:00": "5",
        "module use /opt/site/modules/all": "module use @scratch@/modules",
        "-maxh 23.9": "-maxh 0.07",
        "-dlb yes -ntomp 2 -ntmpi 10 -pme gpu -bonded gpu -npme 1": "-dlb no -ntomp 1 -ntmpi 2 -reprod",
    },
    "lightning_signal": {
        "gpu:4": "gpu:fake:1",
        "ntasks-per-node=4": "ntasks-per-node=1",
        "cpus-per-task=6": "cpus-per-task=1",
        "--mem=0": "--mem=1G",
        "0-02:00:00": "9",
        "SIGUSR1@90": "SIGUSR1@60",
        "$HOME/envs/lit": "lit",
        "--devices 4": "--devices 1",
    },
    "matlab_requeue": {"-p day": "-p short", "-c 4": "-c 1", "10:00:00": "5", "4G": "500M", MAIL: ""},
    "namd_array": {
        "#SBATCH -A molsim\n": "",
        "0-19%1": "0-2%1",
        "gpu:1": "gpu:fake:1",
        "#SBATCH --gres-flags=enforce-binding\n": "",
        "cpus-per-task=8": "cpus-per-task=1",
        "16G": "200M",
        "4:0:0": "5",
        "/opt/group/modules": "@scratch@/modules",
        "srun namd3": "srun md3",
    },
    "r_sweep": {"04:00:00": "5"},
    "singularity_restarts": {"gpu:1": "gpu:fake:1", "60:0:0": "5"},
    "torchrun_nodes": {
        "-c 8": "-c 1",
        "1-00:15:00": "5",
        "128G": "1G",
        "gpu:a30:3": "gpu:fake:1",
        "source activate torch": "source torch/bin/activate",
        # The nodes of the laboratory are this machine under other names.
        "head -n 1": "head -n 1 | sed 's/.*/localhost/'",
        "nproc-per-node=3": "nproc-per-node=1",
    },
    "vasp_stopcar": {
        "-q regular": "--mem=200M",
        "-C knl": "-p short",
        "-N 2": "-N 1",
        "ntasks-per-node=16": "ntasks-per-node=1",
        "48:00:00": "5",
        "02:00:00": "4",
        "96:00:00": "10",
        "USR1@300": "USR1@240",
        "-n 32 -c 16 --cpu_bind=cores": "-n 1",
    },
}


def put(site: Site, stem: str, **files: str) -> None:
    site.put(stem, SCALED[stem], **files)


def test_parts_of_amber_come_to_the_coordinates_of_the_last_one(site: Site) -> None:
    """Amber cannot be had: a program with the options of pmemd."""
    site.program("amber24/bin/pmemd.cuda", PMEMD)
    site.program("amber24/amber.sh", "export AMBER_WAS_READ=1\n")
    files = {"first.in": "nstlim = 100,\n", "next.in": "irest = 1, nstlim = 100,\n"}
    put(site, "amber_parts", **files, **{"system.prmtop": "0 0\n", "equil.rst7": "0 12345\n"})

    alone = site.by_itself("amber_parts", times=3)
    folder = site.with_exec("amber_parts", 2, r"--goal 300 --progress 'prod.rst:^(\d+) '")

    assert (alone / "prod.rst").read_text().startswith("300 ")
    assert (folder / "prod.rst").read_bytes() == (alone / "prod.rst").read_bytes()
    assert site.pauses("prod") == 2


@pytest.mark.needs("lammps")
def test_jobs_that_are_submitted_one_by_one_come_to_the_restart_file_of_the_last_one(site: Site) -> None:
    """LAMMPS, a thousand steps in each job."""
    begin = "create_box 1 box\ncreate_atoms 1 box\nmass 1 1.0\nvelocity all create 3.0 87287 loop geom"
    start = LAMMPS.replace("@begin@", f'if "$(is_file(md.rst))" then "jump SELF old"\n{begin}\njump SELF go')
    start = start.replace("lattice", 'if "$(is_file(md.rst))" then "jump SELF old"\nlattice', 1)
    start = start.replace(f'if "$(is_file(md.rst))" then "jump SELF old"\n{begin}', begin)
    start = start.replace("jump SELF go\n", "jump SELF go\nlabel old\nread_restart md.rst\nlabel go\n")
    start = re.sub(r"restart 100 .*\nrun 4000 upto .*\n", "", start)
    start += 'run 1000 every 100 "shell sleep 1"\nwrite_restart draft.rst\nshell mv draft.rst md.rst\n'
    start += 'print "$(step)" file md.step\n'
    put(site, "chain_of_jobs", **{"md.in": start, "md.sbatch": "#!/bin/bash\n#SBATCH --mem=300M\nlmp -in md.in\n"})

    alone = site.by_itself("chain_of_jobs", is_submitter=True)
    folder = site.with_exec("chain_of_jobs", 2, r"--keep md.rst md.step --goal 4000 --progress 'md.step:^(\d+)'")

    assert (alone / "md.step").read_text() == "4000\n"
    assert (folder / "md.rst").read_bytes() == (alone / "md.rst").read_bytes()
    assert site.pauses("chain_of_jobs") == 3


def test_dmtcp_with_a_timeout_comes_to_the_table_of_its_program(site: Site) -> None:
    """The stand-in for DMTCP does not take all that the script says: there it is the program in a job of its own."""
    orbit = (ROOT / "examples" / "dmtcp" / "orbit.py").read_text()
    words = "import sys\n\nsys.argv[1:] = [sys.argv[1], '0.1']\n"
    put(site, "dmtcp_timeout", **{"count": f"#!{sys.executable}\n{words}{orbit}"})
    site.work.added_environment["PATH"] = f"{PROGRAMS}:{site.work.added_environment['PATH']}"
    for folder in (site.root, site.alone):
        (folder / "count").chmod(0o755)

    if REAL:  # an option of its releases before 5
        script = site.alone / "dmtcp_timeout.sh"
        script.write_text(script.read_text().replace("--no-coordinator", "--new-coordinator"))
        site.by_itself("dmtcp_timeout")
        assert list(site.alone.glob("ckpt_*.dmtcp"))
    else:
        site.cluster.sbatch("./count 500", "--time=5", cwd=site.alone)
        site.until_idle()
    site.converted("dmtcp_timeout", 0.5)

    assert (site.final("ckpt_sample") / "orbit.csv").read_bytes() == (site.alone / "orbit.csv").read_bytes()
    assert site.pauses("ckpt_sample") >= 1


@pytest.mark.needs("quantum-espresso", "libpmix-dev")
@pytest.mark.usefixtures("pmix")
def test_espresso_comes_to_the_same_molecule(site: Site) -> None:
    """Two atoms that find their distance; the last steps of a search are as exact as its own threshold."""
    espresso.make_pseudopotential(site.scratch)
    put(site, "espresso_stdin", **{"relax.in": espresso.input_text(site.scratch)})

    alone = site.by_itself("espresso_stdin")
    folder = site.with_exec("espresso_stdin", 8, "--keep 'out/**' --saved-by exit")

    found = [espresso.distance(each / "out" / "h2.xml") for each in (alone, folder)]
    assert found[1] == pytest.approx(found[0], rel=0, abs=1e-5)
    assert found[0] == pytest.approx(1.46, abs=0.05)  # of H2, in bohr
    assert b"JOB DONE" in (folder / "relax.out").read_bytes()


@pytest.mark.needs("gromacs")
def test_grompp_and_mdrun_that_submit_themselves_come_to_the_same_structure(site: Site) -> None:
    water = gmx_systems.water()
    gmx_systems.write_mdp(water / "npt.mdp", {**gmx_systems.NVT, "nsteps": 5000, "nstxout-compressed": 0})
    names = {"npt.mdp": "npt.mdp", "conf.gro": "nvt.gro", "topol.top": "topol.top", "index.ndx": "index.ndx"}
    put(site, "gromacs_grompp", **{name: (water / own).read_text() for own, name in names.items()})
    site.module("GROMACS/2021-fosscuda-2019b", site.first_mdrun_is_cut("gmx", 2000), "scratch/modules")

    alone = site.by_itself("gromacs_grompp")
    site.converted("gromacs_grompp", 2)

    assert (site.final("npt") / "md.gro").read_bytes() == (alone / "npt.gro").read_bytes()
    assert site.pauses("npt") >= 1


def test_lightning_that_is_told_by_a_signal_comes_to_the_same_model(site: Site) -> None:
    pytest.importorskip("pytorch_lightning", reason="missing: pytorch_lightning (pip install unbroken[adapters])")
    put(site, "lightning_signal", **{"train.py": LIGHTNING})
    site.venv("lit")

    alone = site.by_itself("lightning_signal")
    folder = site.with_exec("lightning_signal", 1.5)

    assert (alone / "model.txt").read_text().count("0x") == 25
    assert (folder / "model.txt").read_bytes() == (alone / "model.txt").read_bytes()
    assert site.pauses("lightning_signal") >= 1


@pytest.mark.needs("octave")
def test_a_script_of_matlab_comes_to_the_same_place(site: Site) -> None:
    """Octave runs it, behind the words of MATLAB."""
    site.program("bin/matlab", '#!/bin/sh\nexec octave-cli --norc --eval "$2"\n')
    site.module("MATLAB/2023a", site.scratch / "bin")
    put(site, "matlab_requeue", **{"simulate.m": SIMULATE})

    alone = site.by_itself("matlab_requeue")
    folder = site.with_exec("matlab_requeue", 0.6)

    assert (alone / "place.txt").read_text().startswith("400 ")
    assert (folder / "place.txt").read_bytes() == (alone / "place.txt").read_bytes()
    assert site.pauses("simulate") >= 1


def test_an_array_of_namd_comes_to_the_restart_file_of_its_last_task(site: Site) -> None:
    """NAMD is in no registry, and has a preset: a program without one that reads the same words and file."""
    site.program("bin/md3", NAMD)
    site.work.write("scratch/modules/NAMD/3.0.1-gpu", f"#%Module\nprepend-path PATH {site.scratch / 'bin'}\n")
    put(site, "namd_array", **{"run.namd": "outputname run\nseed 12345\nrun 100\n"})

    alone = site.by_itself("namd_array")
    options = r"--keep run.restart --goal 300 --progress 'run.restart:^(\d+) '"
    folder = site.with_exec("namd_array", 2, options)

    assert (alone / "run.restart").read_text().startswith("300 ")
    assert (folder / "run.restart").read_bytes() == (alone / "run.restart").read_bytes()
    assert site.pauses("namd_array") == 2


@pytest.mark.needs("r-base-core")
def test_a_sweep_of_r_comes_to_the_table_of_each_task(site: Site) -> None:
    lines = "".join(f"--seed {seed}\n" for seed in range(1, 5))
    put(site, "r_sweep", **{"walk.R": R_WALK, "params.txt": lines, "logs/.keep": ""})

    alone = site.by_itself("r_sweep")
    site.converted("r_sweep", 0.4, files="['walk_*.rds']")

    for task in range(1, 5):
        table = (alone / "out" / f"result_{task}.csv").read_bytes()
        assert table.count(b"\n") == 401
        assert (site.final(f"sweep_{task}") / "out" / f"result_{task}.csv").read_bytes() == table
    assert sum(site.pauses(f"sweep_{task}") for task in range(1, 5)) >= 1


def test_a_container_that_is_requeued_by_its_exit_code_comes_to_the_same_model(site: Site) -> None:
    """A real Apptainer under the name of Singularity, and a Python in its image."""
    programs = apptainer()
    (site.scratch / "bin").mkdir()
    (site.scratch / "bin" / "singularity").symlink_to(programs / "apptainer")
    paths = f"{site.scratch / 'bin'}:{programs}"
    site.work.added_environment["PATH"] = f"{paths}:{site.work.added_environment['PATH']}"
    put(site, "singularity_restarts", **{"train.py": EPOCHS})
    make_python_image(site.root / "python.sif")
    shutil.copy(site.root / "python.sif", site.alone)

    alone = site.by_itself("singularity_restarts")
    folder = site.with_exec("singularity_restarts", 2)

    assert (alone / "model.pt").read_text().startswith("300 ")
    assert (folder / "model.pt").read_bytes() == (alone / "model.pt").read_bytes()


def test_torchrun_on_two_nodes_comes_to_the_same_model(site: Site) -> None:
    pytest.importorskip("torch", reason="missing: torch")
    site.put("torchrun_nodes", {**SCALED["torchrun_nodes"], "29400": str(free_port())}, **{"train.py": RANKS})
    site.venv("torch")
    for folder in (site.root, site.alone):  # as pip makes it
        program = folder / "torch" / "bin" / "torchrun"
        program.write_text(f"#!{program.with_name('python')}\nfrom torch.distributed.run import main\n\nmain()\n")
        program.chmod(0o755)
    (site.alone / "logs").mkdir()

    alone = site.by_itself("torchrun_nodes")
    (site.root / "logs").mkdir()
    folder = site.with_exec("torchrun_nodes", 1)

    assert (alone / "model.txt").read_text().splitlines()[0] == "2 ranks"
    assert (alone / "model.txt").read_text().count("0x") == 25
    assert (folder / "model.txt").read_bytes() == (alone / "model.txt").read_bytes()
    assert site.pauses("torchrun_nodes") >= 1


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("localhost", 0))
        return int(found.getsockname()[1])


def test_vasp_that_is_told_by_a_file_comes_to_the_same_structure(site: Site) -> None:
    """VASP cannot be had: a program that reads INCAR, POSCAR and STOPCAR."""
    site.program("bin/vasp_std", VASP)
    site.module("vasp/20181030-knl", site.scratch / "bin")
    put(site, "vasp_stopcar", INCAR="NSW = 500\n", POSCAR="0 12345\n")

    alone = site.by_itself("vasp_stopcar")
    folder = site.with_exec("vasp_stopcar", 0.5)

    assert (alone / "CONTCAR").read_text().startswith("500 ")
    assert (alone / "POSCAR").read_text() != "0 12345\n"  # it was requeued
    assert (folder / "CONTCAR").read_bytes() == (alone / "CONTCAR").read_bytes()
    assert site.pauses("vasp") >= 1
