"""What the preset makes of LAMMPS' input scripts: the lines that resume, the outputs, and what it refuses."""

import re
from pathlib import Path

import pytest

from unbroken.engines.command.lammps.resumable import LammpsInput, read_input
from unbroken.engines.script_edit import NotPlainError

HEAD = """\
units lj
region box block 0 4 0 4 0 4
create_box 1 box
create_atoms 1 box
"""


def script(tmp_path: Path, lines: str, end: str = "run 20000\n") -> LammpsInput:
    path = tmp_path / "in.melt"
    path.write_text(HEAD + (f"{lines}\n" if lines else "") + end)
    return read_input(path)


def added(script: LammpsInput) -> tuple[list[str], list[str]]:
    """Return the lines that are new in the script that starts, and the lines of the one that resumes."""
    start = [line for line in script.starting.splitlines() if line not in script.lines]
    return start, script.resuming.splitlines()


# --- when it saves ---


@pytest.mark.parametrize(
    ("lines", "clock", "save"),
    [
        ("fix 1 all nve", 20, 400),
        ("fix a all ave/time 50 10 1000 c_p\nfix b all ave/time 10 20 300 c_p file b.dat", 3000, 3000),
        ("variable n equal 70\nfix a all ave/time 1 10 ${n} c_p", 70, 350),
        ("neigh_modify every 25 delay 0 check no", 25, 400),
        ("neigh_modify every 25", 20, 400),
    ],
)
def test_restart_files_and_stops_fall_on_the_ends_of_all_averages(tmp_path, lines, clock, save):
    made = script(tmp_path, lines)

    for lines in added(made):
        assert f"timer           timeout ${{limit}} every {clock}" in lines
        assert lines[-4].startswith(f"restart         {save} ")


def test_ours_replaces_the_restart_line_of_the_script(tmp_path):
    resume = added(script(tmp_path, "restart 600 old\nrestart 100 a b"))[1]

    assert [line for line in resume if line.startswith("restart")] == [
        "restart 100 a b",
        "restart         400 melt.*.rst",
    ]


# --- ramps ---


@pytest.mark.parametrize(
    "line",
    [
        "fix 1 all nvt temp 3.0 0.5 0.5",
        "fix 1 all npt temp 1 1 0.5 iso 1 4 1",
        "fix 1 all npt/omp temp 1 1 0.5 x 1 4 1",
        "fix 1 all langevin 3.0 0.5 0.5 4711",
        "fix 1 all temp/rescale 10 3.0 0.5 0.1 1.0",
        "fix 1 all press/berendsen iso 1.0 4.0 1.0",
        "fix 1 all deform 1 x final 0 8",
        "variable f equal ramp(0,1)",
    ],
)
def test_a_ramp_ends_where_it_did_even_if_the_goal_is_raised(tmp_path, line):
    for lines in added(script(tmp_path, line)):
        assert "run             ${total} upto start 0 stop 20000" in lines


@pytest.mark.parametrize(
    "line", ["fix 1 all nvt temp 3.0 3.0 0.5", "fix 1 all deform 1 x erate 0.1", "fix 1 all nvt temp v_t 1.0 0.5"]
)
def test_what_is_no_ramp_can_go_on_further(tmp_path, line):
    for lines in added(script(tmp_path, line)):
        assert "run             ${total} upto start 0 stop ${total}" in lines


# --- the script that resumes ---


@pytest.mark.parametrize(
    ("line", "resumed"),
    [
        ('fix t all print 5 "$(step)" file t.dat screen no', 'fix t all print 5 "$(step)" append t.dat screen no'),
        ("fix t all print 5 '$(step) # x' title 'a b' &\n  file t.dat", None),
        ("log new.log", "log new.log append"),
        ("fix 2 all langevin 2.0 2.0 0.1 4711", "fix 2 all langevin 2.0 2.0 0.1 $(1+(4710+step)%900000000)"),
        ("group mobile dynamic all every 10", "group mobile dynamic all every 10"),
        ('print "hello"', 'print "hello"'),
    ],
)
def test_what_is_said_again(tmp_path, line, resumed):
    resumed = resumed or """fix t all print 5 '$(step) # x' title "# resumed" append t.dat"""

    assert resumed in added(script(tmp_path, line))[1]


@pytest.mark.parametrize(
    "line",
    [
        "velocity all create 3.0 4711",
        "group hot region box",
        "set type 1 charge 1.0",
        "change_box all x final 0 8",
        "delete_bonds all bond 1",
        "write_data begin.data",
        'print "begin" file begin.txt',
        "displace_atoms all random 0.1 0.1 0.1 4711",
    ],
)
def test_what_is_in_the_restart_file_or_was_of_the_beginning_is_not_said_again(tmp_path, line):
    assert line.split()[0] not in {each.split()[0] for each in added(script(tmp_path, line))[1]}


@pytest.mark.parametrize(
    ("lines", "modified"),
    [
        ("dump d all atom 100 x.lammpstrj", "append yes delay $(step+1)"),
        ("dump d all custom 100 x.txt id c_pe", "append yes"),
        ("dump d all atom 100 x.*.txt", "delay $(step+1)"),
        ("dump d all dcd 100 x.dcd", "delay $(step+1)"),
        ("dump d all dcd 100 x.dcd\ndump_modify d first yes delay 50", "first no"),
        ("dump d all atom 100 x.gz\ndump_modify d every v_n units yes", "units no"),
    ],
)
def test_a_dump_continues_its_file_without_a_frame_twice(tmp_path, lines, modified):
    found = [each for each in added(script(tmp_path, lines))[1] if each.startswith("dump_modify     ")]

    assert found == [f"dump_modify     d {modified}"]


def test_what_comes_after_the_run_is_done_at_the_goal_alone(tmp_path):
    for lines in added(script(tmp_path, "", "run 20000\nwrite_data end.data\n")):
        at = lines.index('if              "$(step) < ${total}" then quit')
        assert lines[at - 1] == "write_restart   melt.*.rst"
        assert lines[at + 1 :] in ([], ["write_data end.data"])


# --- the outputs ---


@pytest.mark.parametrize(
    ("lines", "outputs"),
    [
        ("dump d all dcd 100 x.dcd\ndump e all atom 100 x.*.txt\ndump f all atom 100 x.gz", {}),
        ('fix t all print 5 "$(step:%d), $(temp)" file t.csv', {"t.csv": "rows"}),
        ("fix a all ave/time 5 10 100 c_p file a.dat", {"a.dat": "rows"}),
        ("fix a all ave/time 5 10 100 c_p file a.dat overwrite", {}),
        ("fix a all ave/time 5 10 100 c_g[*] mode vector file a.dat", {"a.dat": r"^(\d+) \d+$"}),
        ("thermo 100", {"log.lammps": r"^ *(\d+)(?: +[-+.\deEinfa]+){5,6} *$"}),
        (
            "thermo_style custom step temp c_m[*]\nthermo 100\nlog a.log",
            {"a.log": r"^ *(\d+)(?: +[-+.\deEinfa]+){2,} *$"},
        ),
        ("thermo_style custom temp step\nthermo 100", {}),
        ("thermo_style multi\nthermo 100", {}),
        ("log none\nthermo 100", {}),
        ("dump d all atom 10 x\nfix a all ave/time 5 10 100 c_p file a\nunfix a\nundump d", {}),
        ("dump d all atom 10 x\nundump d\ndump d all atom 10 y", {"y": r"ITEM: TIMESTEP\n(\d+)\n"}),
        ("thermo 20000", {}),
        ('thermo 100\nfix t all print 5 "$(temp) $(pe)"', {}),
    ],
)
def test_files_whose_records_say_their_step_are_joined_by_it(tmp_path, lines, outputs):
    assert script(tmp_path, lines).outputs() == outputs


# --- what is refused ---


@pytest.mark.parametrize(
    ("lines", "end", "why"),
    [
        ("", "run 10\nrun 2000\n", "line 6: `run 2000`: the second `run`; write one plain input script for each run"),
        ("", "run ${n}\n", "line 5: `run ${n}`: the number of steps is not known; type `run N`"),
        ("", "run 2000 every 10 NULL\n", "line 5: `run 2000 every 10 NULL`: "),
        ("label again", None, "line 5: `label again`: "),
        ("if '${n} > 1' then 'run 10'", None, "line 5: `if "),
        ("timer timeout 1:00:00", None, "line 5: `timer timeout 1:00:00`: the preset sets the limit itself"),
        ("run_style respa 2 2", None, "line 5: `run_style respa 2 2`: "),
        ("read_restart old.rst", None, "line 5: `read_restart old.rst`: this script itself resumes"),
        ("temper 1000 100 1.0 1 2 3", None, "line 5: `temper 1000 100 1.0 1 2 3`: it is not known how it resumes"),
        ("reset_timestep 500", None, "line 5: `reset_timestep 500`: the steps must count from 0"),
        (
            "minimize 0 0 10 10",
            None,
            "line 5: `minimize 0 0 10 10`: its iterations count as steps; type reset_timestep 0",
        ),
        (
            "dump d all atom 5 x\nminimize 0 0 10 10\nreset_timestep 0",
            None,
            "line 5: `dump d all atom 5 x`: it would write the steps of the minimization too; move it behind",
        ),
        (
            "fix a all ave/time 1 5000 15000 c_p file a",
            None,
            "line 5: `fix a all ave/time 1 5000 15000 c_p file a`: a restart",
        ),
        ("fix a all ave/time 5 10 ${n} c_p", None, "line 5: `fix a all ave/time 5 10 ${n} c_p`: type numbers"),
        (
            "fix a all ave/time 5 10 100 c_p ave running",
            None,
            "line 5: `fix a all ave/time 5 10 100 c_p ave running`: ",
        ),
        ("fix a all ave/chunk 5 10 100 b vx", None, "line 5: `fix a all ave/chunk 5 10 100 b vx`: it is not known"),
        (
            "fix t all print 5 '$(temp)' file t.dat",
            None,
            "line 5: `fix t all print 5 '$(temp)' file t.dat`: begin its rows with ",
        ),
        ("pair_style dpd 1.0 2.5 34387", None, "line 5: `pair_style dpd 1.0 2.5 34387`: each segment would draw"),
        ("restart 500 r.%", None, "line 5: `restart 500 r.%`: a restart file for each process"),
        ("fix v all vector 10 c_p", None, "line 5: `fix v all vector 10 c_p`: it is not known how it resumes"),
        (
            "fix v all plumed plumedfile p.dat",
            None,
            "line 5: `fix v all plumed plumedfile p.dat`: it is not known how",
        ),
        (
            "fix l all langevin 1 1 1 ${seed}",
            None,
            "line 5: `fix l all langevin 1 1 1 ${seed}`: its seed is not a number",
        ),
        ("compute m all msd average yes", None, "line 5: `compute m all msd average yes`: its mean is not"),
        (
            "thermo_style custom step time temp",
            None,
            "line 5: `thermo_style custom step time temp`: `time` counts from the restart",
        ),
        (
            "variable f equal elapsed/100",
            None,
            "line 5: `variable f equal elapsed/100`: `elapsed` counts from the restart",
        ),
        (
            "dump d all atom 5 x\ndump_modify d time yes",
            None,
            "line 6: `dump_modify d time yes`: the time counts from 0",
        ),
        (
            'variable l equal "lx"\nvariable l0 equal ${l}',
            None,
            "line 6: `variable l0 equal ${l}`: it takes `${l}` when it is read",
        ),
        (
            "fix 1 all spring tether 1 $(lx / 2) 0 0 0",
            None,
            "line 5: `fix 1 all spring tether 1 $(lx / 2) 0 0 0`: it takes",
        ),
        (
            "dump d all atom 5 /scratch/x",
            None,
            "line 5: `dump d all atom 5 /scratch/x`: it writes outside of the run's folder",
        ),
        ("include forces.in", None, "line 5: `include forces.in`: move its lines into this script"),
        (
            "compute c all chunk/atom bin/1d x lower 2 ids once",
            None,
            "line 5: `compute c all chunk/atom bin/1d x lower 2",
        ),
        ("variable total equal 5", None, "line 5: `variable total equal 5`: the preset uses this name"),
        ("python f invoke", None, "line 5: `python f invoke`: "),
        ("kim init X metal", None, "line 5: `kim init X metal`: it is not known how"),
    ],
)
def test_what_cannot_be_resumed_right_is_refused_with_its_line(tmp_path, lines, end, why):
    with pytest.raises(NotPlainError, match=f"^{re.escape(why)}"):
        script(tmp_path, lines, end or "run 20000\n")


@pytest.mark.parametrize(
    "lines",
    [
        "minimize 0 0 10 10\nreset_timestep 0",
        "fix r all box/relax iso 0\nminimize 0 0 10 10\nreset_timestep 0\nunfix r",
        "variable l0 equal 5.0\nvariable half equal ${l0}/2\nfix 1 all spring tether 1 ${half} 0 0 0",
        "variable strain equal (lx-5)/5",
        'fix t all print 5 "$(step) $(lx)" file t',
        "fix a all ave/time 5 10 100 c_p ave one",
    ],
)
def test_what_resumes_right_is_not_refused(tmp_path, lines):
    assert script(tmp_path, lines).steps == 20000


def test_what_it_writes_is_no_input_though_a_run_before_has_left_it(tmp_path):
    made = script(
        tmp_path, "read_dump old.dump 5 x\ndump d all atom 10 new.dump\nfix a all ave/time 5 10 100 c_p file a.dat"
    )
    for name in ("old.dump", "new.dump", "a.dat"):
        (tmp_path / name).touch()

    assert made.inputs(tmp_path) == ["old.dump"]
