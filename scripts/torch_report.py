"""Draws the metrics of a training over its steps with the borders of its segments, and says where its time went."""

from pathlib import Path

import matplotlib
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

PANELS = 8  # more make a figure that nobody scrolls through
POINTS = 2000  # more cannot be told apart, and make an SVG slow
WINDOW = 50  # of the running mean, a fiftieth of all points
FEW = 100  # so few points are drawn one by one


def segment_borders(timing: pd.DataFrame) -> list[int]:
    """The last step of each segment but the last."""
    return [int(step) for step in timing.groupby("segment")["step"].max().sort_index().iloc[:-1]]


def metrics_figure(metrics: pd.DataFrame, timing: pd.DataFrame) -> Figure:
    """One panel for each metric over the steps; where a segment ended, a line."""
    names = [name for name in metrics.columns if name not in ("epoch", "step")][:PANELS]
    figure = Figure(figsize=(8, 0.6 + 1.9 * max(1, len(names))), layout="constrained")
    panels: list[Axes] = list(figure.subplots(max(1, len(names)), 1, sharex=True, squeeze=False)[:, 0])
    for panel, name in zip(panels, names, strict=False):
        _draw(panel, metrics[["step", name]].dropna(), name)
    for panel in panels:
        for border in segment_borders(timing):
            panel.axvline(border, color="C3", linewidth=0.8, linestyle=":")
    panels[0].set_title(
        "grey: every value; blue: running mean, or single values; red: where a segment ended", fontsize=9
    )
    panels[-1].set_xlabel("step")
    return figure


def _draw(panel: Axes, rows: pd.DataFrame, name: str) -> None:
    every = max(1, len(rows) // POINTS)
    if len(rows) <= FEW:
        panel.plot(rows["step"], rows[name], color="C0", linewidth=1.0, marker=".", markersize=4)
    else:
        mean = rows[name].rolling(max(1, len(rows) // WINDOW), center=True).mean()
        panel.plot(rows["step"][::every], rows[name][::every], color="0.75", linewidth=0.7)
        panel.plot(rows["step"][::every], mean[::every], color="C0", linewidth=1.4)
    panel.set_ylabel(name)


def times_table(timing: pd.DataFrame) -> pd.DataFrame:
    """Seconds of each timer over all segments, their number, and their mean."""
    last = timing.iloc[-1]
    rows = {name: {"count": count, "seconds": seconds} for name, (count, seconds) in last["timers"].items()}
    table = pd.DataFrame.from_dict(rows, orient="index", columns=["count", "seconds"])
    table["seconds each"] = table["seconds"] / table["count"]
    return table


def torch_report(metrics: Path, timing: Path, plot: Path, table: Path) -> None:
    """Writes the plot, in the format that its name says, and the table."""
    rows, times = pd.read_json(metrics, lines=True), pd.read_json(timing, lines=True)
    with matplotlib.rc_context({"svg.fonttype": "none"}):  # words stay words, in a browser and to a search
        metrics_figure(rows, times).savefig(plot, dpi=110)
    times_table(times).to_html(table, border=0, float_format="{:.4g}".format)


if __name__ == "__main__":
    inputs, outputs = snakemake.input, snakemake.output  # type: ignore[name-defined]
    torch_report(Path(inputs.metrics), Path(inputs.timing), Path(outputs.plot), Path(outputs.table))
