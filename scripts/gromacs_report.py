"""Draws the energies of a finished simulation with the borders of its segments, and says their means in a table."""

from pathlib import Path

import matplotlib
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from unbroken.engines.gromacs.tool import SHOWN, UNITS

POINTS = 2000  # more cannot be told apart, and make an SVG slow
WINDOW = 50  # of the running mean, a fiftieth of all points


def energies_figure(energies: pd.DataFrame, segments: pd.DataFrame) -> Figure:
    """One panel for each of the shown energies over time; where a segment began, a line."""
    names = [name for name in SHOWN if name in energies]
    figure = Figure(figsize=(8, 0.6 + 1.9 * len(names)), layout="constrained")
    panels: list[Axes] = list(figure.subplots(len(names), 1, sharex=True, squeeze=False)[:, 0])
    every = max(1, len(energies) // POINTS)
    borders = segments.drop_duplicates("segment", keep="last")["end_ps"].iloc[:-1]
    for panel, name in zip(panels, names, strict=True):
        shown, mean = energies[name], energies[name].rolling(max(1, len(energies) // WINDOW), center=True).mean()
        panel.plot(energies["time_ps"][::every], shown[::every], color="0.75", linewidth=0.7)
        panel.plot(energies["time_ps"][::every], mean[::every], color="C0", linewidth=1.4)
        for border in borders:
            panel.axvline(border, color="C3", linewidth=0.8, linestyle=":")
        panel.set_ylabel(f"{name}\n({UNITS[name]})")
    panels[0].set_title("grey: every frame; blue: running mean; red: where a segment ended", fontsize=9)
    panels[-1].set_xlabel("time (ps)")
    return figure


def energies_table(energies: pd.DataFrame, segments: pd.DataFrame) -> pd.DataFrame:
    """Mean and standard deviation of each shown energy, for each segment and for all."""
    ends = segments.drop_duplicates("segment", keep="last")
    edges = [-float("inf"), *ends["end_ps"].iloc[:-1], float("inf")]
    labels = [f"segment {number}" for number in ends["segment"]]
    part = pd.cut(energies["time_ps"], edges, labels=labels)
    shown = energies[[name for name in SHOWN if name in energies]]
    each = shown.groupby(part, observed=True).agg(["mean", "std"])
    whole = shown.groupby(lambda _: "all segments").agg(["mean", "std"])
    return pd.concat([each, whole])


def gromacs_report(energies: Path, segments: Path, plot: Path, table: Path) -> None:
    """Writes the plot, in the format that its name says, and the table."""
    rows, ends = pd.read_csv(energies, sep="\t"), pd.read_csv(segments, sep="\t")
    with matplotlib.rc_context({"svg.fonttype": "none"}):  # words stay words, in a browser and to a search
        energies_figure(rows, ends).savefig(plot, dpi=110)
    energies_table(rows, ends).to_html(table, border=0, float_format="{:.4g}".format)


if __name__ == "__main__":
    inputs, outputs = snakemake.input, snakemake.output  # type: ignore[name-defined]
    gromacs_report(Path(inputs.energies), Path(inputs.segments), Path(outputs.plot), Path(outputs.table))
