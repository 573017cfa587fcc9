"""The first hour on a cluster: an empty folder, `unbroken init`, `unbroken run --slurm`, at a terminal of 80x24."""

import re
from pathlib import Path

import yaml
from cluster.lab import Cluster
from support.terminal import Terminal
from support.workdir import BIN, WorkDir


def typed(line: str, folder: Path, work: WorkDir) -> list[str]:
    """The screen after a line was typed."""
    environment = {**work.environment(), "PATH": f"{BIN}:{work.environment()['PATH']}", "UNBROKEN_CONSOLE": ""}
    with Terminal(["bash", "-c", line], folder, environment) as screen:
        code = screen.wait()
        assert code == 0, "\n".join(screen.text)
        return screen.shown


def test_three_lines_lead_from_an_empty_folder_to_a_result_on_the_cluster(
    slurm_work: WorkDir, cluster: Cluster
) -> None:
    folder = slurm_work.root / "mine"
    folder.mkdir()

    begun = typed("unbroken init toy", folder, slurm_work)
    shown = typed(begun[-1].removeprefix("type: "), folder, slurm_work)
    again = typed("snakemake --profile slurm", folder, slurm_work)
    status = typed("unbroken status", folder, slurm_work)

    assert begun == [
        "config/config.yaml: written",
        "Snakefile: written",
        "profiles/default: written",
        "profiles/slurm: written, with the partitions of sinfo",
        "type: unbroken run --slurm",
    ]
    places = yaml.safe_load((folder / "profiles/slurm/site.yaml").read_text())["site"]["places"]
    assert {name: place["partition"] for name, place in places.items()} == {"short": "short", "gpu": "gpu"}
    assert shown[0] == "unbroken: snakemake --logger unbroken --snakefile Snakefile --profile slurm"
    assert shown[1].startswith("Using profile")  # Snakemake's own, in one or two lines
    events = "".join(shown).partition("unbroken 0.1.0: 1 run: demo")[2]
    assert re.fullmatch(
        r"unbroken: demo: submitted array of 22 tasks \d+"
        r"(\d\d:\d\d:\d\d demo segment \d+ of 20: saved at \d+/300 steps, \d+ s of work)+"
        r"\d\d:\d\d:\d\d demo segment \d+ of 20: finished, 300/300 steps; results: results/demo/final",
        events,
    )
    assert again[-1] == "Nothing to be done (all requested files are present and up to date)."
    assert status[0].split() == ["run", "state", "progress", "segments", "checkpoint", "still"]
    assert re.fullmatch(r"demo  finished  ━+  300/300 steps  \d+/20 +\d+ s ago +0 s", status[1])
    assert status[2:] == ["demo: results: results/demo/final"]
    assert (folder / "results/demo/final/trace.csv").is_file()
