"""What cutting a GROMACS simulation costs: unbroken, and a bash loop with -maxh and -cpi, against one run.

Water, a small box and a large one; the number of steps is such that one run takes as long as ten segments.
"""

import importlib.util
import os
import re
import subprocess
import tempfile
from functools import partial
from pathlib import Path

from support.cuts import HEADER, Came, by_unbroken, contents, row
from support.measure import ROOT, cost_of, in_turns, machine, options, publish, table

# The systems of the tests; their folder has the same name as ours, so it cannot be imported by it.
_SPEC = importlib.util.spec_from_file_location("gmx_systems", ROOT / "tests" / "support" / "gmx_systems.py")
gmx_systems = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(gmx_systems)

LOOP = """set -e
while [ ! -f md.gro ]; do
    gmx -quiet mdrun -s md.tpr -cpi md.cpt -deffnm md -maxh {hours} -cpt 1 -ntmpi 1 -ntomp 1 -reprod
    echo segment >> segments
done
"""
RESULTS = ("md.xtc", "md.gro")


def unbroken(base: Path, tpr: Path, segments: int, segment_seconds: float) -> Came:
    folder = Path(tempfile.mkdtemp(dir=base))
    run = {"engine": "gromacs", "segments": segments, "segment_minutes": segment_seconds / 60, "save_minutes": 1}
    return by_unbroken(folder, {**run, "settings": {"tpr": str(tpr), "exact": True}}, RESULTS)


def bash_loop(base: Path, tpr: Path, segment_seconds: float) -> Came:
    folder = Path(tempfile.mkdtemp(dir=base))
    (folder / "md.tpr").symlink_to(tpr)
    cost = cost_of(["bash", "-c", LOOP.format(hours=segment_seconds / 3600)], folder)
    count = len((folder / "segments").read_text().splitlines())
    return Came(cost.wall_seconds, count, [], contents(folder, RESULTS))


def steps_a_second(tpr: Path, base: Path) -> float:
    """By a short run of mdrun alone."""
    folder = Path(tempfile.mkdtemp(dir=base))
    gmx_systems.run(folder, "mdrun", "-s", tpr, "-deffnm", "md", "-maxh", 4 / 3600, "-ntmpi", 1, "-ntomp", 1, "-reprod")
    log = (folder / "md.log").read_text()
    steps = max(map(int, re.findall(r"Writing checkpoint, step (\d+)", log)))
    seconds = float(re.findall(r"^ +Time: +\S+ +(\S+)", log, re.MULTILINE)[-1])
    return steps / seconds


def large_water(base: Path, nanometres: float) -> Path:
    """A folder like that of the small water."""
    folder = base / "large"
    folder.mkdir()
    (folder / "topol.top").write_text(gmx_systems.TOPOLOGY)
    box = (nanometres, nanometres, nanometres)
    gmx_systems.run(folder, "solvate", "-cs", "spc216.gro", "-box", *box, "-o", "box.gro", "-p", "topol.top")
    gmx_systems.write_mdp(folder / "em.mdp", {**gmx_systems.SHORT_RANGE, "integrator": "steep", "nsteps": 50})
    gmx_systems.run(folder, "grompp", "-f", "em.mdp", "-c", "box.gro", "-p", "topol.top", "-o", "em.tpr")
    gmx_systems.run(folder, "mdrun", "-deffnm", "em", "-c", "conf.gro", "-ntmpi", 1, "-ntomp", 2)
    return folder


def tpr_of(system: Path, steps: int) -> Path:
    tpr = system / f"bench_{steps}.tpr"
    values = {**gmx_systems.NVT, "nsteps": steps, "nstxout": 0, "nstvout": 0, "nstlog": 1000, "nstenergy": 1000}
    gmx_systems.write_mdp(system / "bench.mdp", values)
    gmx_systems.run(system, "grompp", "-f", "bench.mdp", "-c", "conf.gro", "-p", "topol.top", "-o", tpr)
    return tpr


def measure(system: Path, base: Path, segments: int, segment_seconds: float, rounds: int) -> str:
    pace = steps_a_second(tpr_of(system, 10**7), base)
    # A little less than fits, so that the last segment is not a crumb.
    tpr = tpr_of(system, int(pace * segments * segment_seconds * 0.9))
    atoms = (system / "conf.gro").read_text().splitlines()[1].strip()
    variants = {
        "one segment of unbroken": partial(unbroken, base, tpr, 1, 36000.0),
        "segments of unbroken": partial(unbroken, base, tpr, 2 * segments, segment_seconds),
        "bash loop, `-maxh -cpi`": partial(bash_loop, base, tpr, segment_seconds),
    }
    found = in_turns(variants, rounds)
    whole = found["one segment of unbroken"]
    rows = [row(name, came, whole) for name, came in found.items()]
    head = f"**{int(atoms):,} atoms**, segments of {segment_seconds:g} s, {pace:.0f} steps a second, rounds: {rounds}"
    return f"{head}\n\n{table(HEADER, rows)}"


if __name__ == "__main__":
    chosen = options(
        __doc__,
        segments=(int, 10, "how many segments"),
        seconds=(float, 6.0, "length of a segment of the small system; twice that of the large one"),
        nanometres=(float, 6.2, "side of the large box"),
        rounds=(int, 2, "how often"),
    )
    where = machine("snakemake")
    version = subprocess.run(["gmx", "--version"], capture_output=True, text=True, check=True).stdout
    release = next(line.split(":")[1].strip() for line in version.splitlines() if line.startswith("GROMACS version"))
    with tempfile.TemporaryDirectory(dir=os.environ.get("UNBROKEN_BENCH_FOLDER")) as name:
        base = Path(name)
        pages = [measure(gmx_systems.water(), base, chosen.segments, chosen.seconds, chosen.rounds)]
        large = large_water(base, chosen.nanometres)
        pages.append(measure(large, base, chosen.segments, 2 * chosen.seconds, chosen.rounds))
    publish("gromacs", "\n\n".join([f"{where} GROMACS {release}.", *pages]), chosen.write)
