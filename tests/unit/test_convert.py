"""`unbroken convert`: what a site's script comes to, and that nothing of it is untrue."""

import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.workdir import ROOT

from unbroken.cli.convert_command import convert_script
from unbroken.convert.conversion import Conversion, convert
from unbroken.convert.script import Script
from unbroken.engines.found import read_checked_runs
from unbroken.engines.starter import config_text
from unbroken.errors import ConfigError

SCRIPTS = ROOT / "tests" / "site_scripts"
BED = {path.stem: path for path in sorted(SCRIPTS.rglob("*.sh"))}
CONFIGS = ("dmtcp_loop", "dmtcp_timeout", "gromacs_array", "gromacs_grompp", "keras_array", "r_sweep")
# What the scripts of the bed read, by name; train.sbatch and md.sbatch are the jobs that two of them submit.
PRESENT = ("run.namd", "relax.in", "first.in", "next.in", "system.prmtop", "equil.rst7", "train.py", "count", "walk.R")
PRESENT += ("INCAR", "POSCAR", "npt.mdp", "nvt.gro", "topol.top", "index.ndx", "simulate.m", "prod.tpr", "GMXRC.bash")
PRESENT += ("solve", "in.dat", "start.in", "resume.in", "main.py", "md.tpr", "wrapper", "sim")
TEXTS = {
    "train.sbatch": "#!/bin/bash\nsrun python train.py --ckpt model.pt $@\n",
    "md.sbatch": "#!/bin/bash\n#SBATCH -J md\n./md --restart md.chk\n",
    "params.txt": "--seed 1\n--seed 2\n--seed 3\n--seed 4 --long\n",
    "own.py": "from unbroken.training.torch import Training\n",
}
MDRUN = "gmx mdrun -deffnm md -cpi md.cpt -maxh 0.9"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in (*PRESENT, *TEXTS):
        (tmp_path / name).write_text(TEXTS.get(name, ""))
    return tmp_path


def of_bed(folder: Path, stem: str, without: str = "/opt/site/gromacs/2020.3/bin/") -> Conversion:
    text = BED[stem].read_text().replace(without, "")
    return convert(Script(f"{stem}.sh", text, folder))


def converted(folder: Path, text: str, *arguments: str) -> Conversion:
    """A script as it would be written, without the indentation of the test."""
    return convert(Script("job.sh", textwrap.dedent(text).lstrip("\n"), folder), arguments, "run")


def run_of(found: Conversion) -> dict[str, Any]:
    (run,) = yaml.safe_load(config_text(found.config))["runs"].values()
    return dict(run)


def exec_line(found: Conversion) -> str:
    """The line with `unbroken exec`, up to the command."""
    (line,) = [line for line in found.exec_text.splitlines() if re.match(r"\S*unbroken exec ", line)]
    return line[line.index("unbroken exec ") :].removeprefix("unbroken exec --name run ")


def notes(found: Conversion) -> str:
    return "\n".join(found.notes)


# --- the test bed ---


@pytest.mark.parametrize("stem", CONFIGS)
def test_a_config_is_accepted_by_the_loader_and_each_line_says_where_it_comes_from(folder: Path, stem: str) -> None:
    without = "source activate tf_gpu\n" if stem == "keras_array" else "/opt/site/gromacs/2020.3/bin/"
    text = config_text(of_bed(folder, stem, without).config)

    assert read_checked_runs(yaml.safe_load(text), folder)
    lines = [line for line in text.splitlines() if line.startswith("    ") and line != "    settings:"]
    assert [line for line in lines if "  # " not in line] == []
    assert "# ?" not in text


@pytest.mark.process
@pytest.mark.parametrize("stem", [stem for stem in BED if stem not in CONFIGS])
def test_any_other_script_stays_what_it_is_but_for_the_call_and_what_submits_it_again(folder: Path, stem: str) -> None:
    found = of_bed(folder, stem)

    assert not found.config
    subprocess.run(["bash", "-n", "-c", found.exec_text], check=True, capture_output=True)
    assert found.exec_text.count("unbroken exec ") == 1
    name = {"afterok_chain": "train.sbatch", "chain_of_jobs": "md.sbatch"}.get(stem, "")
    before = (TEXTS[name] if name else BED[stem].read_text()).splitlines()
    changed = re.compile(
        r"exec|--requeue|^: |; : |  : |^'|--signal|\[ -f CONTCAR|^\[ -s aimd|^export |; export |: sbatch"
    )
    assert [line for line in found.exec_text.splitlines() if line not in before and not changed.search(line)] == []


def test_an_array_of_gromacs_comes_to_what_its_first_comment_says(folder: Path) -> None:
    assert run_of(of_bed(folder, "gromacs_array")) == {
        "engine": "gromacs",
        "segments": 10,
        "segment_minutes": 720,
        "partition": "short",
        "constraint": "cascadelake",
        "nodes": 1,
        "tasks": 56,
        "mem_mb": 2000,
        "modules": ["cuda/10.2", "gcc/7.3.0", "openmpi/4.0.5", "gromacs/2020.3-gpu-mpi"],
        "enter": [],
        "settings": {
            "tpr": "prod.tpr",
            "gmx": "gmx_mpi",
            "gmxrc": str(folder / "GMXRC.bash"),
            "ranks": 56,
            "launcher": ["srun", "--mpi=pmi2", "-n", "{ranks}"],
            "options": ["-dlb", "yes"],
        },
    }


@pytest.mark.parametrize(
    ("stem", "keys", "settings"),
    [
        (
            "gromacs_grompp",
            {"engine": "gromacs", "threads": 20, "gpus": 1, "partition": "cascade"},
            {"mdp": "npt.mdp", "reference": "nvt.gro", "ranks": 10, "pme": "gpu", "bonded": "gpu", "pme_ranks": 1},
        ),
        (
            "dmtcp_loop",
            {"engine": "dmtcp", "segment_minutes": 240, "save_minutes": 60, "modules": ["dmtcp/2.6.0"]},
            {"command": ["./solve", "in.dat"], "inputs": ["solve", "in.dat"]},
        ),
        ("dmtcp_timeout", {"engine": "dmtcp", "mem_mb": 100}, {"command": ["./count", "500"], "inputs": ["count"]}),
        (
            "keras_array",
            {"engine": "command", "segments": 10, "segment_minutes": 10, "mem_mb": 10240, "conda": "tf_gpu"},
            {"start": ["python", "train.py", "5000"], "inputs": ["train.py"]},
        ),
    ],
)
def test_an_engine_s_script_comes_to_what_its_first_comment_says(
    folder: Path, stem: str, keys: dict[str, object], settings: dict[str, object]
) -> None:
    run = run_of(of_bed(folder, stem))

    assert {key: run[key] for key in keys} == keys
    assert {key: run["settings"][key] for key in settings} == settings


def test_of_dmtcp_s_options_those_that_unbroken_sets_itself_are_left_out(folder: Path) -> None:
    line = "dmtcp_launch --join --host n1 --gzip -i 600 --rm --ckpt-signal=12 ./count 5"
    found = converted(folder, f"#SBATCH -t 60\n{line}\n")

    assert (run_of(found)["save_minutes"], run_of(found)["settings"]["options"]) == (10, ["--rm", "--ckpt-signal=12"])
    assert read_checked_runs(yaml.safe_load(config_text(found.config)), folder)


def test_a_sweep_has_the_words_of_each_line_of_its_table(folder: Path) -> None:
    runs = read_checked_runs(yaml.safe_load(config_text(of_bed(folder, "r_sweep").config)), folder)

    assert [run.name for run in runs] == ["sweep_1", "sweep_2", "sweep_3", "sweep_4"]
    assert runs[3].settings["start"] == ("Rscript", "walk.R", "--seed", "4", "--long", "--out", "out/result_4.csv")
    assert runs[3].environment.enter[-2:] == ('mkdir -p out; exec "$@"', "bash")


@pytest.mark.parametrize(
    ("stem", "line"),
    [
        ("afterok_chain", "--name afterok_chain --keep 'model.pt' -- srun python train.py --ckpt model.pt $@"),
        ("amber_parts", "--name prod --requeue --keep 'prod.rst' -- bash -c '"),
        ("chain_of_jobs", "--name chain_of_jobs --keep 'md.chk' -- ./md --restart md.chk"),
        (
            "cp2k_timeout",
            '--name cp2k_timeout --requeue --store "$SLURM_SUBMIT_DIR/.unbroken" '
            "--keep 'aimd-1.restart' -- bash -euo pipefail -c '",
        ),
        ("espresso_stdin", "--name relax --requeue --stdout relax.out -- srun pw.x < relax.in || exit"),
        ("lammps_resubmit", "--name melt --requeue --keep 'restart.{progress}.bin' -- bash -c '"),
        ("matlab_requeue", "--name simulate --requeue --keep 'state.mat' -- bash -c '"),
        ("namd_array", "--name namd_array -- srun namd3 +p8 run.namd > run-$part.log"),
        ("singularity_restarts", "--name singularity_restarts --requeue --keep 'model.pt' -- bash -c '"),
        ("torchrun_nodes", "--name torchrun_nodes --requeue --keep 'snapshot.pt' -- bash -c '"),
        ("vasp_stopcar", "--name vasp --requeue --keep 'CONTCAR' -- bash -c '"),
    ],
)
def test_the_call_keeps_what_the_script_looks_for(folder: Path, stem: str, line: str) -> None:
    assert f"unbroken exec {line}\n" in of_bed(folder, stem).exec_text


def test_what_chooses_the_command_is_the_same_text_in_each_job(folder: Path) -> None:
    text = of_bed(folder, "lammps_resubmit").exec_text

    assert text.endswith(
        """-- bash -c '
newest=$(ls -t restart.*.bin 2>/dev/null | head -n1)
if [[ -n "$newest" ]]; then
    exec mpirun -np $SLURM_NTASKS lmp -in resume.in -var rst "$newest" >> log.melt
else
    exec mpirun -np $SLURM_NTASKS lmp -in start.in > log.melt
fi
' || exit
grep -q "Total wall time" log.lammps && exit 0
: sbatch "$0"
"""
    )


# --- the number of the array's task ---


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("#SBATCH -a 1-4%1\nn=$((500 * SLURM_ARRAY_TASK_ID))", ["2000"]),
        ("#SBATCH -a 0-3%1\nn=$(( ($SLURM_ARRAY_TASK_ID + 1) * 10 / 4 ))", ["10"]),
        ("#SBATCH -a 1-2%1\nlist=(0.1 0.2 0.3)\nn=${list[$SLURM_ARRAY_TASK_ID]}", ["0.3"]),
        ('#SBATCH -a 1-4%1\nf=params.txt\nn=$(sed -n "${SLURM_ARRAY_TASK_ID}p" $f)', ["--seed", "4", "--long"]),
    ],
)
def test_a_command_with_the_number_is_that_of_the_last_task(folder: Path, lines: str, words: list[str]) -> None:
    found = converted(folder, f"#SBATCH -t 60\n{lines}\npython train.py $n\n")

    assert run_of(found)["settings"]["start"] == ["python", "train.py", *words]
    assert "nothing says from which files python train.py resumes" in notes(found)


@pytest.mark.parametrize("value", ["$(calc $SLURM_ARRAY_TASK_ID)", "${list[$SLURM_ARRAY_TASK_ID]}"])
@pytest.mark.parametrize("limit", ["", "%1"])
def test_a_command_with_a_number_that_is_not_known_never_gets_unbroken_exec(
    folder: Path, value: str, limit: str
) -> None:
    with pytest.raises(ConfigError, match=r"job.sh line 3: .*would refuse task 2"):
        converted(folder, f"#SBATCH -t 60 -a 1-4{limit}\nx={value}\n./sim $x\n")


def test_tasks_that_run_side_by_side_have_names_of_their_own(folder: Path) -> None:
    assert exec_line(converted(folder, "#SBATCH -a 1-4\n./sim\n")) == (
        "unbroken exec --name run_$SLURM_ARRAY_TASK_ID --requeue -- ./sim"
    )


# --- keys ---


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        ("#SBATCH --mem-per-cpu=2G -c 4 -n 2", "mem_mb", 16384),
        ("#SBATCH --gpus-per-node=a100:2 -N 2 -n 2", "gpus", 4),
        ("#SBATCH --gres=gpu:v100:2", "gpu_type", "v100"),
        ("#SBATCH -t 2-12:30", "segment_minutes", 3630),
        ("#SBATCH -t 90 --time-min=30", "segment_minutes", {"at_least": 30, "at_most": 90}),
        ("#SBATCH --time=0", "segment_minutes", 60),
        ("#SBATCH -p long --exclude=n7  # slow", "slurm_extra", ["--exclude=n7"]),
        ("#SBATCH --mail-user= --nice", "slurm_extra", ["--nice"]),
        ("#SBATCH --account= -J 12", "engine", "gromacs"),
        ("export OMP_NUM_THREADS=7", "threads", 7),
        ("source venv/bin/activate", "venv", "venv"),
        ("conda activate md", "conda", "md"),
        ("source ~/.bashrc", "enter", ["bash", "-lc", 'source ~/.bashrc; exec "$@"', "bash"]),
        (
            "module use /m\nmodule load a\nexport H='a b'",
            "enter",
            ["bash", "-lc", "module use /m; module load a; export H='a b'; exec \"$@\"", "bash"],
        ),
    ],
)
def test_a_line_becomes_the_key_that_says_the_same(folder: Path, line: str, key: str, value: object) -> None:
    assert run_of(converted(folder, f"#SBATCH --time=60\n{line}\n{MDRUN}\n"))[key] == value


def test_a_training_that_saves_by_unbroken_needs_no_files(folder: Path) -> None:
    found = converted(folder, "#SBATCH --time=60 --gpus=1\nsrun python own.py --epochs 12\n")

    assert exec_line(found) == "--requeue -- srun python own.py --epochs 12"
    assert found.is_ready


def test_memory_that_a_script_does_not_name_is_said_to_be_a_default(folder: Path) -> None:
    text = config_text(converted(folder, f"#SBATCH --time=60\n{MDRUN}\n").config)

    assert re.search(r"mem_mb: 2000 +# the script names no memory", text)


# --- what is not understood ---


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("module load gromacs/2024 || true", ""),
        ("export LD_LIBRARY_PATH=/a:$LD_LIBRARY_PATH", ""),
        ("export OMP_NUM_THREADS=$(nproc)", ""),
        ("sed -i s/a/b/ in.dat", ""),
        ("echo 5 > n.dat", ""),
        ("rm -rf old", ""),
        ("cp $HOME/md.tpr .", ""),
        ("source site.sh", ""),
        ("conda activate $ENV", ""),
        ("for f in a b; do cp $f x; done", ""),
        ("if hostname | grep -q gpu; then\n module load cuda\nfi", "if hostname | grep -q gpu; then ..."),
        ("cat > in.dat << EOF\nmodule load x\nEOF", "cat > in.dat << EOF"),
        ("#SBATCH --export=NONE", "--export=NONE"),
        ("#SBATCH --gres=lscratch:100", "--gres=lscratch:100"),
    ],
)
def test_a_line_that_is_not_understood_stays_in_the_script_and_is_listed(folder: Path, line: str, shown: str) -> None:
    found = converted(folder, f"#SBATCH --time=60\n{line}\n{MDRUN}\n")

    assert notes(found) == f"not looked into:\n    job.sh line 2: {shown or line}"
    assert line in found.exec_text
    assert exec_line(found) == "--requeue --engine gromacs -- gmx mdrun -deffnm md"


def test_what_follows_the_program_is_not_run_after_a_pause(folder: Path) -> None:
    found = converted(folder, f"#SBATCH --time=60\n{MDRUN} &\nwait\ncp md.gro $HOME\n")

    assert exec_line(found) == "--requeue --engine gromacs -- gmx mdrun -deffnm md || exit"
    assert notes(found) == "not looked into:\n    job.sh line 4: cp md.gro $HOME"


@pytest.mark.parametrize(
    ("head", "is_by_path"),
    [
        ("#!/bin/bash -l\n", True),
        ("#!/bin/bash --login\n", True),
        ("#!/bin/bash -e\n", False),
        ("#!/bin/bash\n#SBATCH -n 1 --export=NONE\n", True),
        ("#!/bin/bash\n#SBATCH --export=ALL\n", False),
    ],
)
def test_a_job_with_a_path_of_its_own_finds_unbroken(folder: Path, head: str, is_by_path: bool) -> None:
    (line,) = [
        line for line in converted(folder, f"{head}#SBATCH -t 60\n./sim\n").exec_text.splitlines() if " exec " in line
    ]

    own = Path(sys.executable).with_name("unbroken")
    assert line.startswith(f"{own} exec --name run " if is_by_path else "unbroken exec --name run ")


def test_a_wrapper_before_mdrun_hides_no_mdrun(folder: Path) -> None:
    found = converted(folder, "#SBATCH -t 60\nsrun --cpu-bind=cores ./wrapper gmx_mpi mdrun -deffnm md -cpi md.cpt\n")

    assert exec_line(found) == (
        "--requeue --engine gromacs -- srun --cpu-bind=cores ./wrapper gmx_mpi mdrun -deffnm md"
    )


def test_a_function_of_the_script_is_carried_along(folder: Path) -> None:
    script = """
        #!/bin/bash
        base=restart
        newest_restart() { ls -t $base.* | head -1; }
        ./sim --restart "$(newest_restart)"
    """

    lines = converted(folder, script).exec_text.splitlines()

    assert lines[4:] == [
        "export base",
        "export -f newest_restart",
        "unbroken exec --name run --requeue --keep 'restart.{progress}' -- bash -c '",
        'exec ./sim --restart "$(newest_restart)"',
        "'",
    ]


@pytest.mark.parametrize(
    ("script", "line"),
    [
        ("timeout 3h nohup ./sim 5 &\nwait\n", "--requeue -- ./sim 5 || exit"),
        ("echo 5 | ./sim\n", "--requeue -- ./sim"),
        ("C=3 time ./sim > out 2>&1\n", "--requeue --stdout out -- ./sim 2>&1"),
        ("#SBATCH --signal=USR2@60\n./sim\n", "--requeue --stop-signal USR2 -- ./sim"),
        ("trap 'kill -USR1 $pid' TERM\n./sim & pid=$!\nwait\n", "--requeue --stop-signal USR1 -- ./sim || exit pid=$!"),
        ("./sim --resume=state.pt\n", "--requeue --keep 'state.pt' -- ./sim --resume=state.pt"),
        ("[ -f in.dat ] || exit 1\n./sim\n", "--requeue -- ./sim"),
        ("./sim || exit 1\n", "--requeue -- ./sim || exit 1"),
    ],
)
def test_the_call_stands_before_the_long_command(folder: Path, script: str, line: str) -> None:
    text = converted(folder, script).exec_text

    assert [each for each in text.splitlines() if f"unbroken exec --name run {line}" in each], text


@pytest.mark.process
@pytest.mark.parametrize(
    ("script", "lines"),
    [
        ("n=3\nfor i in 1 2; do\n  ./sim $i $n\ndone\n", ["export n", "-- bash -c '", "for i in 1 2; do", "'"]),
        ("for i in 1 2; do ./sim $i & done\n", ["-- bash -c '", "for i in 1 2; do ./sim $i & done", "wait", "'"]),
        ("if [ -f a ]; then ./sim a; echo; fi\n", ["-- bash -c '", "if [ -f a ]; then ./sim a; echo; fi", "'"]),
        ("cat in.dat | while read x; do\n./sim $x\ndone\n", ["cat in.dat | while read x; do", "./sim $x", "done", "'"]),
        (
            "case $1 in\n  a|b) echo;;\n  (0)\n./sim -c;;\n  *) ./sim;;\nesac\n",
            ["-- bash -c '", "case $1 in", "./sim -c;;", "  *) ./sim;;", '\' bash "$@"'],
        ),
        (
            "list=(-a 'b c')\nif [ -f a ]; then list+=(-r a); fi\n./sim \"${list[@]}\"\n",
            ["if [ -f a ]; then list+=(-r a); fi"],
        ),
        ("x=$(hostname)\n./sim --at $x\n", ["x=$(hostname)", "export x", "-- bash -c '", "exec ./sim --at $x", "'"]),
        ("function go {\n  ./sim $1\n}\ngo 5\n", ["function go {", "-- ./sim $1 || exit", "}", "go 5"]),
        ("./prepare\nsrun ./sim\n./plot\n", ["./prepare", "-- srun ./sim || exit", "./plot"]),
    ],
)
def test_what_chooses_the_command_is_within_the_one_call(folder: Path, script: str, lines: list[str]) -> None:
    text = converted(folder, script).exec_text

    subprocess.run(["bash", "-n", "-c", text], check=True, capture_output=True)
    assert text.count("unbroken exec --name run --requeue ") == 1
    found = [
        re.sub("unbroken exec --name run --requeue (--keep 'a' )?", "", line).strip() for line in text.splitlines()
    ]
    assert [line for line in lines if line.strip() not in found] == [], text


def test_of_several_programs_the_one_that_is_taken_is_named(folder: Path) -> None:
    assert notes(converted(folder, "./prepare\nsrun ./sim 5\n./plot\n")).startswith(
        "not looked into:\n    job.sh line 2: srun ./sim 5\n    job.sh line 3: ./plot\n"
        "taken for the long command: line 2: srun ./sim 5\n"
    )


def test_the_early_signal_goes_and_other_options_of_its_line_stay(folder: Path) -> None:
    text = converted(folder, "#SBATCH --time=60 --signal=B:USR1@90 -c 2\n#SBATCH --signal USR1\n./sim\n").exec_text

    assert text.splitlines()[1:3] == ["#SBATCH --time=60 -c 2", "# not needed: #SBATCH --signal USR1"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("#!/bin/csh\nsetenv A 4\nif (-e md.cpt) then\n  ./sim\nendif\n", "line 1: a script of csh"),
        (f"#!/bin/bash\n#PBS -l walltime=01:00:00\n{MDRUN}\nqsub job.pbs\n", "line 2: a script for PBS"),
        ("echo 'open\n./sim\n", "line 1: a quote or bracket is not closed"),
        ("if true; then\n./sim\n", "line 1: this block is not closed"),
        ("#SBATCH -J 'a\n./sim\n", "line 1: this #SBATCH line cannot be read"),
        ("#SBATCH -a 1-2000 -t 5\n./sim $SLURM_ARRAY_TASK_ID\n", "line 1: an array of 2000 tasks; write a table"),
        ("if [ -f a ]; then ./sim -r a; else ./sim << EOF\n5\nEOF\nfi\n", "line 1: a here-document"),
        ("#SBATCH --time=5\nmodule load a\n", ": it starts no program"),
        ("sbatch other.sh\n", ": it submits no script of this folder"),
    ],
)
def test_what_is_no_script_for_slurm_is_refused_by_its_line(folder: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        converted(folder, text)

    assert re.match(rf"job.sh:? ?{re.escape(said.removeprefix(': '))}", str(caught.value))


def test_the_script_is_never_run(folder: Path) -> None:
    before = sorted(folder.iterdir())

    converted(folder, f"x=$(touch {folder}/a)\ntouch {folder}/b\n./sim $x `touch {folder}/c`\n")

    assert sorted(folder.iterdir()) == before


# --- what is printed ---


def test_the_page_shows_what_comes_out(folder: Path) -> None:
    page = (ROOT / "docs" / "convert.md").read_text()
    script, shown, config = re.findall(r"```(?:bash|yaml)\n(#!.*?|runs:.*?)```", page, re.DOTALL)[:3]

    assert convert(Script("job.sh", script, folder)).exec_text == shown
    assert config_text(of_bed(folder, "keras_array").config).partition("\n")[2] == config


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


def test_a_program_that_a_preset_knows_becomes_a_run_of_it(folder: Path) -> None:
    (folder / "in.melt").write_text("units lj\nregion b block 0 1 0 1 0 1\ncreate_box 1 b\nrun 500\n")
    text = """
        #!/bin/bash
        #SBATCH -t 08:00:00 -n 4
        module load lammps
        srun lmp -in in.melt > melt.out
        """

    found = run_of(converted(folder, text))

    assert (found["engine"], found["modules"], found["enter"]) == ("command", ["lammps"], ["srun"])
    assert found["settings"] == {"preset": "lammps", "start": ["lmp", "-in", "in.melt"], "stdout": "melt.out"}
