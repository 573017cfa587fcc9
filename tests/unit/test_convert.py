"""`unbroken convert`: what a site's script comes to, line by line, and what is refused."""

import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.workdir import ROOT

from unbroken.cli.convert_command import convert_script
from unbroken.convert.bash import Script
from unbroken.convert.config_text import config_text
from unbroken.convert.conversion import Conversion, convert, remarks_text
from unbroken.engines.found import read_checked_runs
from unbroken.errors import ConfigError

SCRIPTS = ROOT / "tests" / "site_scripts"
BED = sorted(SCRIPTS.glob("*.sh"))
# What the scripts of the bed read, by name; `train.sbatch` is the job that afterok_chain.sh submits.
INPUTS = {
    "afterok_chain": {"train.sbatch": "#!/bin/bash\nsrun python train.py --ckpt model.pt $@\n", "train.py": ""},
    "cp2k_timeout": {"input/aimd.inp": "&GLOBAL\n"},
    "dmtcp_loop": {"solve": "", "in.dat": ""},
    "gromacs_array": {"prod.tpr": "", "GMXRC.bash": ""},
    "keras_array": {"train.py": ""},
    "lammps_resubmit": {"start.in": "units lj\nrun 20000 upto\n", "resume.in": "run 20000 upto\n"},
    "torch_requeue": {"main.py": ""},
}


def converted(folder: Path, text: str, *arguments: str, name: str = "job.sh") -> Conversion:
    """A script as it would be written, without the indentation of the test."""
    text = textwrap.dedent(text).lstrip("\n")
    return convert(Script(name, text, folder), arguments, keys=())


def run_of(found: Conversion) -> dict[str, Any]:
    return dict(yaml.safe_load(config_text(found))["runs"][found.run])


def refusal(folder: Path, text: str, *arguments: str) -> str:
    with pytest.raises(ConfigError) as caught:
        converted(folder, text, *arguments)
    return str(caught.value)


def of_bed(folder: Path, stem: str) -> Conversion:
    for name, text in INPUTS[stem].items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    script = (SCRIPTS / f"{stem}.sh").read_text()
    return convert(Script(f"{stem}.sh", script.replace("/opt/site/gromacs/2020.3/bin/", ""), folder), keys=())


# --- the test bed ---


@pytest.mark.parametrize("stem", [path.stem for path in BED])
def test_a_config_made_of_a_script_of_the_bed_is_accepted_by_the_loader(tmp_path: Path, stem: str) -> None:
    found = of_bed(tmp_path, stem)

    (run,) = read_checked_runs(yaml.safe_load(config_text(found)), tmp_path)

    assert run.name == found.run


@pytest.mark.parametrize("stem", [path.stem for path in BED])
def test_every_line_of_a_config_says_where_it_comes_from(tmp_path: Path, stem: str) -> None:
    found = of_bed(tmp_path, stem)

    lines = [line for line in config_text(found).splitlines() if line.startswith("    ") and line != "    settings:"]

    assert lines
    assert [line for line in lines if "  # " not in line] == []


def test_an_array_of_gromacs_comes_to_what_its_first_comment_says(tmp_path: Path) -> None:
    assert run_of(of_bed(tmp_path, "gromacs_array")) == {
        "engine": "gromacs",
        "segments": 10,
        "segment_minutes": 720,
        "place": "short",
        "constraint": "cascadelake",
        "nodes": 1,
        "tasks": 56,
        "modules": ["cuda/10.2", "gcc/7.3.0", "openmpi/4.0.5", "gromacs/2020.3-gpu-mpi"],
        "enter": [],
        "settings": {
            "tpr": "prod.tpr",
            "gmx": "gmx_mpi",
            "gmxrc": str(tmp_path / "GMXRC.bash"),
            "ranks": 56,
            "launcher": ["srun", "--mpi=pmi2", "-n", "{ranks}"],
            "options": ["-dlb", "yes"],
        },
    }


def test_a_script_of_lammps_that_submits_itself_is_a_run_with_a_start_and_a_resume(tmp_path: Path) -> None:
    run = run_of(of_bed(tmp_path, "lammps_resubmit"))

    assert (run["engine"], run["segment_minutes"], run["tasks"]) == ("command", 1440, 64)
    assert (run["account"], run["qos"]) == ("phys7", "normal")
    assert run["enter"][:2] == ["bash", "-lc"]
    assert run["enter"][2] == 'module restore lammps; exec "$@"'
    assert run["enter"][4:] == ["mpirun", "-np", "64"]
    assert run["settings"] == {
        "start": ["lmp", "-in", "start.in"],
        "resume": ["lmp", "-in", "resume.in", "-var", "rst", "{file}"],
        "inputs": ["start.in", "resume.in"],
        "files": ["restart.{progress}.bin"],
        "saved_by": "next",
        "goal": 20000,
        "exit_paused": [0],
    }


def test_a_loop_of_dmtcp_comes_to_the_engine_that_does_the_same(tmp_path: Path) -> None:
    found = of_bed(tmp_path, "dmtcp_loop")
    run = run_of(found)

    assert run.pop("segments") == 20
    assert run == {
        "engine": "dmtcp",
        "segment_minutes": 240,
        "place": "short",
        "modules": ["dmtcp/2.6.0"],
        "save_minutes": 60,
        "settings": {"command": ["./solve", "in.dat"], "inputs": ["solve", "in.dat"]},
    }
    assert [remark.what for remark in found.asked] == ["segments"]


def test_staging_and_an_environment_are_steps_before_the_program(tmp_path: Path) -> None:
    run = run_of(of_bed(tmp_path, "torch_requeue"))

    steps = run["enter"][2].split("; ")
    assert steps[:2] == ['source "$(conda info --base)/etc/profile.d/conda.sh"', "conda activate pytorch"]
    assert steps[2] == 'mkdir -p "$SLURM_TMPDIR"/data'
    assert steps[-2:] == ['tar -xf "$SLURM_TMPDIR"/data/digits.tar -C "$SLURM_TMPDIR"/data', 'exec "$@"']
    assert run["settings"]["start"][2] == (
        'exec python main.py --data "$SLURM_TMPDIR"/data --run-dir "$SCRATCH"/logs/"{run}"'
    )
    assert (run["place"], run["threads"], run["mem_mb"], run["segment_minutes"]) == ("gpu", 4, 16384, 15)
    assert run["modules"] == ["anaconda/3", "cuda/11.7"]


def test_a_goal_that_grows_with_the_array_is_that_of_its_last_task(tmp_path: Path) -> None:
    run = run_of(of_bed(tmp_path, "keras_array"))

    assert (run["segments"], run["segment_minutes"], run["mem_mb"]) == (10, 10, 10240)
    assert run["settings"]["start"] == ["python", "train.py", "{goal}"]
    assert run["settings"]["goal"] == 5000
    assert "source activate tf_gpu" in run["enter"][2]


def test_a_scratch_copy_becomes_the_folder_of_its_own_and_a_container_the_way_in(tmp_path: Path) -> None:
    found = of_bed(tmp_path, "cp2k_timeout")
    run = run_of(found)

    image = str(tmp_path / "cp2k.sif")
    assert run["enter"] == [
        *("srun", "--ntasks=96", "--cpus-per-task=1", "apptainer", "exec", "--bind", "/scratch", image)
    ]
    assert run["slurm_extra"] == ["--ntasks-per-node=48", "--exclusive"]
    assert run["constraint"] == "[icelake|milan]"
    assert run["settings"]["resume"] == ["cp2k.psmp", "-i", "aimd-1.restart", "-o", "aimd.out"]
    assert run["settings"]["inputs"] == ["input/aimd.inp"]
    assert run["settings"]["environment"] == {"CP2K_DATA_DIR": "/opt/cp2k/data"}
    assert "line 8: `timeout 23.5h`" in "\n".join(remarks_text(found.dropped, found.script))
    assert [remark.line for remark in found.lost] == [9]


def test_a_script_for_the_login_node_comes_to_the_job_that_it_submits(tmp_path: Path) -> None:
    run = run_of(of_bed(tmp_path, "afterok_chain"))

    assert (run["segments"], run["segment_minutes"], run["place"], run["gpu_type"]) == (6, 480, "gpu", "a100")
    assert run["settings"]["start"] == ["python", "train.py", "--ckpt", "model.pt", "--resume", "auto"]


# --- other kinds ---

KINDS = sorted((SCRIPTS / "kinds").glob("*.sh"))
PRESENT = ("run.namd", "relax.in", "first.in", "next.in", "system.prmtop", "equil.rst7", "train.py", "count", "walk.R")
PRESENT += ("INCAR", "POSCAR", "npt.mdp", "nvt.gro", "topol.top", "index.ndx", "simulate.m")
JOB = "#!/bin/bash\n#SBATCH -J md\n./md --restart md.chk\n"


def of_kind(folder: Path, stem: str) -> Conversion:
    for name in PRESENT:
        (folder / name).write_text("")
    (folder / "params.txt").write_text("--seed 1\n--seed 2\n--seed 3\n--seed 4 --long\n")
    (folder / "md.sbatch").write_text(JOB)
    return convert(Script.read(SCRIPTS / "kinds" / f"{stem}.sh", folder), keys=())


@pytest.mark.parametrize("stem", [path.stem for path in KINDS])
def test_a_config_made_of_another_kind_of_script_is_accepted_by_the_loader(tmp_path: Path, stem: str) -> None:
    found = of_kind(tmp_path, stem)

    assert read_checked_runs(yaml.safe_load(config_text(found)), tmp_path)


@pytest.mark.parametrize(
    ("stem", "keys", "settings"),
    [
        (
            "namd_array",
            {"segments": 20, "segment_minutes": 240, "threads": 8, "mem_mb": 16384},
            {"start": ["namd3", "+p8", "run.namd"], "inputs": ["run.namd"]},
        ),
        (
            "espresso_stdin",
            {"tasks": 10, "mem_mb": 10000, "partition": "labs", "segment_minutes": 720},
            {"start": ["bash", "-c", "exec pw.x < relax.in"], "inputs": ["relax.in"]},
        ),
        (
            "vasp_stopcar",
            {"segment_minutes": {"at_least": 120, "at_most": 2880}, "tasks": 32, "nodes": 2, "qos": "regular"},
            {
                "start": ["vasp_std"],
                "stop_file": "STOPCAR",
                "stop_text": "LSTOP = .TRUE.",
                "files": ["CONTCAR"],
                "inputs": ["INCAR", "POSCAR"],
            },
        ),
        (
            "amber_parts",
            {"gpus": 1, "place": "gpu", "segment_minutes": 2880},
            {
                "environment": {"AMBERHOME": "/opt/amber24"},
                "files": ["prod.rst"],
                "inputs": ["first.in", "system.prmtop", "equil.rst7", "next.in"],
            },
        ),
        ("torchrun_nodes", {"gpus": 6, "nodes": 2, "tasks": 2, "threads": 8}, {"files": ["snapshot.pt"]}),
        (
            "singularity_restarts",
            {"segment_minutes": 3600, "place": "gpu"},
            {
                "start": ["python3", "train.py"],
                "resume": ["python3", "train.py", "--resume", "model.pt"],
                "exit_paused": [9],
            },
        ),
        ("dmtcp_timeout", {"engine": "dmtcp", "mem_mb": 100}, {"command": ["./count", "500"], "inputs": ["count"]}),
        (
            "matlab_requeue",
            {"mem_mb": 16384, "modules": ["MATLAB/2023a"], "threads": 4},
            {
                "files": ["state.mat"],
                "finished_file": "done.txt",
                "exit_paused": [0],
                "inputs": ["simulate.m"],
            },
        ),
        (
            "gromacs_grompp",
            {"engine": "gromacs", "threads": 20, "place": "gpu"},
            {"mdp": "npt.mdp", "reference": "nvt.gro", "ranks": 10, "pme": "gpu", "bonded": "gpu", "pme_ranks": 1},
        ),
        (
            "lightning_signal",
            {"tasks": 4, "gpus": 4, "segment_minutes": 120},
            {
                "stop_signal": "USR1",
                "files": ["last.ckpt"],
                "environment": {"NCCL_DEBUG": "INFO", "PYTHONFAULTHANDLER": "1"},
            },
        ),
        ("chain_of_jobs", {"segments": 4, "segment_minutes": 360, "threads": 4}, {"files": ["md.chk"]}),
    ],
)
def test_another_kind_of_script_comes_to_what_its_first_comment_says(
    tmp_path: Path, stem: str, keys: dict[str, object], settings: dict[str, object]
) -> None:
    run = run_of(of_kind(tmp_path, stem))

    assert {key: run.get(key, 1 if key == "gpus" else None) for key in keys} == keys
    assert {key: run["settings"].get(key) for key in settings} == settings


def test_a_sweep_has_the_words_of_each_line_of_its_table(tmp_path: Path) -> None:
    runs = read_checked_runs(yaml.safe_load(config_text(of_kind(tmp_path, "r_sweep"))), tmp_path)

    assert [run.name for run in runs] == ["sweep_1", "sweep_2", "sweep_3", "sweep_4"]
    assert runs[3].settings["start"] == ("Rscript", "walk.R", "--seed", "4", "--long", "--out", "out/result_4.csv")


# --- refused, by line ---


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("#!/bin/bash\ncat > in.dat << EOF\n1\nEOF\n./prog\n", "job.sh line 2: a heredoc"),
        ("./prog <<< 5\n", "job.sh line 1: a here-string"),
        ('cmd="./prog"\neval $cmd\n', "job.sh line 2: `eval`"),
        ("./one\n./two\n", "job.sh line 2: a second program, ./two, beside ./one of line 1"),
        ("for i in 1 2 3; do\n  ./prog $i\ndone\n", "job.sh line 2: a loop (line 1) starts prog again and again"),
        ("echo 5 | ./prog\n", "job.sh line 1: the program reads from a pipe"),
        ("if grep -q a b; then\n  ./prog\nfi\n", "job.sh line 2: whether prog runs depends on `grep -q a b`"),
        ("./prog $1\n", "job.sh line 1: `$1` is an argument of the script"),
        ("#SBATCH --array=1-5\n./prog\n", "job.sh line 1: the tasks of this array differ in nothing"),
        ("./prog $SLURM_ARRAY_TASK_ID\n", "job.sh line 1: `$SLURM_ARRAY_TASK_ID`, but no #SBATCH line makes an array"),
        ("#SBATCH -a 1-2000\n./prog $SLURM_ARRAY_TASK_ID\n", "job.sh line 1: an array of 2000 tasks; write a table"),
        ("if [ a = b; then\n./prog\n", "job.sh line "),
        ("x=$(cat a | grep b | tr c d)\ny=$(calc $x)\n./prog $y\n", "job.sh line 2: what `$(calc $x)` comes to"),
        ("for f in a b; do x=$x$f; done\n./prog $x\n", "job.sh line 1: `$x` depends on the loop of line 1"),
        ("read x < n\n./prog $x\n", "job.sh line 1: `$x` is what `read` reads in the job"),
        ("#SBATCH --time=5\nmodule load a\n", "job.sh: no program is started"),
        ("sbatch other.sh\n", "job.sh line 1: it submits other.sh, which is not in this folder"),
    ],
)
def test_what_cannot_be_carried_over_is_refused_by_its_line(tmp_path: Path, text: str, said: str) -> None:
    assert refusal(tmp_path, text).startswith(said)


def test_the_script_is_never_run(tmp_path: Path) -> None:
    converted(tmp_path, f"x=$(touch {tmp_path}/a)\ntouch {tmp_path}/b\n./prog $x `touch {tmp_path}/c`\n")

    assert list(tmp_path.iterdir()) == []


def test_the_page_shows_what_comes_out(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "convert.md").read_text()
    script = next(text for text in re.findall(r"```bash\n(.*?)```", page, re.DOTALL) if text.startswith("#!"))
    shown = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)[0]
    for name, text in INPUTS["lammps_resubmit"].items():
        (tmp_path / name).write_text(text)

    found = converted(tmp_path, script)

    assert config_text(found).partition("\n")[2] == shown


# --- single lines ---


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("#SBATCH --mem-per-cpu=2G -c 4 -n 2\nsrun ./prog\n", "mem_mb", 16384),
        ("#SBATCH --gpus-per-node=a100:2 -N 2 -n 2\nsrun ./prog\n", "gpus", 4),
        ("#SBATCH --gres=gpu:v100:2\n./prog\n", "gpu_type", "v100"),
        ("#SBATCH -t 2-12:30\n./prog\n", "segment_minutes", 3630),
        ("#SBATCH -t 90 --time-min=30\n./prog\n", "segment_minutes", {"at_least": 30, "at_most": 90}),
        ("#SBATCH -p long --exclude=n7  # slow\n./prog\n", "slurm_extra", ["--exclude=n7"]),
        ("#SBATCH --mail-user= --nice\n./prog\n", "slurm_extra", ["--nice"]),
        ("#SBATCH --account= -J 12\n./prog\n", "engine", "command"),
        ("spack load cuda\n./prog\n", "enter", ["bash", "-c", 'spack load cuda; exec "$@"', "bash"]),
        ("#SBATCH -n 4\n./prog\n", "enter", []),
        ("set -euo pipefail\nmkdir a\n./prog\n", "enter", ["bash", "-c", 'set -e; mkdir a; exec "$@"', "bash"]),
        ("#!/bin/bash -l\nsource ~/.bashrc\n./prog\n", "enter", ["bash", "-lc", 'source ~/.bashrc; exec "$@"', "bash"]),
        (
            "module use /m\nmodule load a\n./prog\n",
            "enter",
            ["bash", "-lc", 'module use /m; module load a; exec "$@"', "bash"],
        ),
        (
            'export H=/h\nexport PATH="$H/bin:$PATH"\n./prog\n',
            "enter",
            ["bash", "-c", 'export PATH=/h/bin:"$PATH"; exec "$@"', "bash"],
        ),
        ("#SBATCH -n 4\nmpirun --map-by core ./prog\n", "enter", ["mpirun", "-n", "4", "--map-by", "core"]),
        ("#SBATCH -n 4\nsrun -n $SLURM_NTASKS ./prog\n", "tasks", 4),
    ],
)
def test_a_line_becomes_the_key_that_says_the_same(tmp_path: Path, text: str, key: str, value: object) -> None:
    assert run_of(converted(tmp_path, text))[key] == value


@pytest.mark.parametrize(
    ("text", "goal"),
    [
        ("run 500\n", 500),
        ("read_restart a.rst\nrun 500 upto\n", 500),
        ('if "$(is_file(a.rst))" then "read_restart a.rst"\nrun 500\n', None),
    ],
)
def test_steps_of_lammps_are_the_goal_unless_they_are_so_many_more(tmp_path: Path, text: str, goal: object) -> None:
    (tmp_path / "md.in").write_text(text)

    assert run_of(converted(tmp_path, "lmp -in md.in\n"))["settings"].get("goal") == goal


@pytest.mark.parametrize(
    ("text", "name"), [("pw.x < relax.in > relax.out\n", r"h2\.EXIT"), ("cp2k.psmp -i a.inp\n", "EXIT")]
)
def test_the_file_that_makes_a_program_leave_is_offered(tmp_path: Path, text: str, name: str) -> None:
    (tmp_path / "relax.in").write_text("&control\n calculation='relax', prefix='h2'\n/\n")

    text = config_text(converted(tmp_path, text))

    assert re.search(rf"^ +# stop_file: {name}  +# \? it saves and leaves when this file is there", text, re.MULTILINE)


@pytest.mark.parametrize("words", ["./prog --resume=state.pt", "./prog"])
def test_how_a_program_saves_is_observed_and_not_asked(tmp_path: Path, words: str) -> None:
    assert "saved_by" not in config_text(converted(tmp_path, f"{words}\n"))


def test_what_the_next_job_begins_with_is_copied_before_it(tmp_path: Path) -> None:
    text = "#SBATCH -n 2\nsave() { cp -p b.out a.in; cp c d; }\ntrap save USR1\nsrun ./prog a.in &\nwait\n"
    (tmp_path / "a.in").write_text("")
    found = converted(tmp_path, text)

    run = run_of(found)

    steps = 'if [ -f b.out ]; then rm -f a.in; cp -p b.out a.in; fi; exec "$@"'
    assert run["enter"][:4] == ["bash", "-c", steps, "bash"]
    assert run["settings"]["files"] == ["b.out"]
    assert [remark.what for remark in found.lost] == ["cp c d"]


@pytest.mark.parametrize(
    ("text", "setting", "value"),
    [
        ("trap 'kill -USR1 $pid' TERM\n./prog & pid=$!\nwait\n", "stop_signal", "USR1"),
        ("stop() { touch STOP; }\ntrap stop USR1\n./prog &\nwait\n", "stop_file", "STOP"),
        ("#SBATCH --signal=USR2@60\n./prog\n", "stop_signal", "USR2"),
        ("export A=1 B=two\n./prog\n", "environment", {"A": "1", "B": "two"}),
        ("C=3 ./prog\n", "environment", {"C": "3"}),
        ("./prog < in.dat > out\n", "start", ["bash", "-c", "exec ./prog < in.dat"]),
        ('if [ "$1" = new ]; then o=-n; fi\n./prog $o\n', "start", ["./prog"]),
        ('if [ -n "$SLURM_ARRAY_TASK_ID" ]; then o=-a; fi\n./prog $o\n', "start", ["./prog"]),
        ('[ -n "$SLURM_JOB_ID" ] && o=-j\n./prog $o\n', "start", ["./prog", "-j"]),
        ('a=1\nb=2\nc="$a \\\n   $b"\n./prog "$c"\n', "start", ["./prog", "1    2"]),
        ("timeout 3h nohup ./prog 5 &\nwait\n", "start", ["./prog", "5"]),
        ("f() { ./prog $1 $2; }\nf a b\n", "start", ["./prog", "a", "b"]),
        ('args=(-a "b c")\nargs+=(-d)\n./prog "${args[@]}"\n', "start", ["./prog", "-a", "b c", "-d"]),
        ("x=run.in\n./prog ${x%.in}.out ${y:-7}\n", "start", ["./prog", "run.out", "7"]),
        ("./prog '{}' $SLURM_CPUS_PER_TASK\n", "start", ["./prog", "{{}}", "{threads}"]),
        ("[ -f DONE ] && exit 0\n./prog\n", "finished_file", "DONE"),
        ("./prog --resume=state.pt\n", "files", ["state.pt"]),
        ("o=''\n[ -f a.cpt ] && o='-r a.cpt'\n./prog $o\n", "resume", ["./prog", "-r", "a.cpt"]),
        ("if (( SLURM_RESTART_COUNT > 0 )); then c=-c; fi\n./prog $c\n", "resume", ["./prog", "-c"]),
        ('case "$SLURM_RESTART_COUNT" in 0) ./prog;; *) ./prog -c;; esac\n', "start", ["./prog"]),
        (
            "#SBATCH -a 1-5%1\nif [ $SLURM_ARRAY_TASK_ID -eq 1 ]; then ./prog; else ./prog -c; fi\n",
            "resume",
            ["./prog", "-c"],
        ),
    ],
)
def test_a_line_becomes_the_setting_that_says_the_same(tmp_path: Path, text: str, setting: str, value: object) -> None:
    assert run_of(converted(tmp_path, text))["settings"][setting] == value


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("./prog\ncp out.dat $HOME\n", "line 2: `cp out.dat $HOME`: comes after the program"),
        ("rm -rf old\n./prog\n", "line 1: `rm -rf old`: unbroken removes nothing"),
        ("echo 5 > n.dat\n./prog\n", "line 1: `echo 5 > n.dat`: writes a file before the program starts"),
        ("sed -i s/a/b/ in.dat\n./prog\n", "line 1: `sed -i s/a/b/ in.dat`: changes a file"),
        ("f() { cp a b; }\ntrap f USR1\n./prog &\nwait\n", "line 1: `cp a b`: is done when the script is told to stop"),
        (
            "if hostname | grep -q gpu; then module load cuda; export A=1; fi\n./prog\n",
            "line 1: `module load cuda`: is done only if hostname | grep -q gpu",
        ),
        (
            "for f in a b; do cp $f x; done\n./prog\n",
            "line 1: `for f in a b; do cp $f x; done`: a loop before the program",
        ),
        ("git pull\n./prog\n", "line 1: `git pull`: prepares what stays"),
        ("#SBATCH --export=NONE\n./prog\n", "line 1: `--export=NONE`: a program gets the environment of its job"),
        ("./prog\n#SBATCH -t 5\n", "line 2: `#SBATCH -t 5`: Slurm does not read it"),
        ("#SBATCH --gres=lscratch:100\n./prog\n", "line 1: `--gres=lscratch:100`: the config has no key"),
    ],
)
def test_what_is_not_carried_over_is_named_by_its_line(tmp_path: Path, text: str, said: str) -> None:
    found = converted(tmp_path, text)

    assert [line for line in remarks_text(found.lost, found.script) if said in line]
    assert f"# not carried over: job.sh {said}" in config_text(found)


# --- environments ---

ENVIRONMENT_KEYS = ("venv", "conda", "container", "container_options")


@pytest.mark.parametrize(
    ("line", "key", "value", "step"),
    [
        ("source venv/bin/activate", "venv", "venv", "source {folder}/venv/bin/activate"),
        ("source /opt/v/bin/activate", "venv", "/opt/v", "source /opt/v/bin/activate"),
        ("source activate tf_gpu", "conda", "tf_gpu", "source activate tf_gpu"),
        ("conda activate tf", "conda", "tf", 'source "$(conda info --base)/etc/profile.d/conda.sh"; conda activate tf'),
        ("source $HOME/v/bin/activate", "", "", "source $HOME/v/bin/activate"),
        ("source site.sh", "", "", "source {folder}/site.sh"),
    ],
)
def test_an_environment_is_a_key_where_there_is_one_and_a_step_elsewhere(
    tmp_path: Path, line: str, key: str, value: str, step: str
) -> None:
    script = Script("job.sh", f"{line}\n./prog\n", tmp_path)

    by_key = run_of(convert(script, keys=ENVIRONMENT_KEYS))
    by_step = run_of(convert(script, keys=()))

    step = step.format(folder=tmp_path)
    assert by_step["enter"] == ["bash", "-c", f'{step}; exec "$@"', "bash"]
    if key:
        assert by_key[key] == value
        assert "enter" not in by_key
    else:
        assert by_key == by_step


def test_a_container_is_a_key_where_there_is_one(tmp_path: Path) -> None:
    script = Script("job.sh", "#SBATCH -n 4\nsrun apptainer exec --nv --bind /data a.sif ./prog\n", tmp_path)

    by_key = run_of(convert(script, keys=ENVIRONMENT_KEYS))
    by_words = run_of(convert(script, keys=()))

    assert (by_key["container"], by_key["container_options"]) == ("a.sif", ["--bind", "/data"])
    assert "enter" not in by_key
    assert by_words["enter"][3:] == ["apptainer", "exec", "--nv", "--bind", "/data", f"{tmp_path}/a.sif"]


def test_an_array_whose_tasks_do_not_follow_each_other_is_a_run_for_each(tmp_path: Path) -> None:
    (tmp_path / "params.txt").write_text("--seed 7\n--seed 8\n")
    script = """
        #SBATCH --array=1-2 --time=60 --job-name=scan
        rates=(none 0.1 0.2)
        line=$(sed -n "${SLURM_ARRAY_TASK_ID}p" params.txt)
        python train.py $line --rate ${rates[$SLURM_ARRAY_TASK_ID]} --out run_$SLURM_ARRAY_TASK_ID
    """

    found = converted(tmp_path, script)
    runs = read_checked_runs(yaml.safe_load(config_text(found)), tmp_path)

    assert [run.name for run in runs] == ["scan_1", "scan_2"]
    assert [run.settings["start"] for run in runs] == [
        ("python", "train.py", "--seed", "7", "--rate", "0.1", "--out", "run_1"),
        ("python", "train.py", "--seed", "8", "--rate", "0.2", "--out", "run_2"),
    ]


@pytest.mark.xfail(strict=True, reason="convert: a run under way in the folder is not seen, and not offered to import")
def test_a_run_under_way_is_seen_and_the_line_that_continues_it_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("unbroken.cli.init_command.has_command", lambda name: False)
    for name in ("md.tpr", "md.cpt"):
        (tmp_path / name).touch()
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/bash\n#SBATCH --time=01:00:00\nsrun gmx_mpi mdrun -deffnm md -cpi md.cpt -maxh 0.9\n")

    convert_script(script, directory=tmp_path)

    assert f"unbroken import job --from {tmp_path}" in capsys.readouterr().out
