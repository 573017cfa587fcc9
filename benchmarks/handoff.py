"""How long until the first step: from typing `snakemake`, and from one segment to the next, on this machine."""

import tempfile
from functools import partial
from pathlib import Path

from support import chains
from support.chains import by_part
from support.measure import in_turns, machine, options, publish, spread, table

if __name__ == "__main__":
    chosen = options(__doc__, rounds=(int, 5, "how often"))
    where = machine("snakemake", "torch")
    with tempfile.TemporaryDirectory() as folder:
        variants = {
            "toy": partial(chains.toy, Path(folder), 200, 0.01, 3, 1.5),
            "torch": partial(chains.torch, Path(folder), 40, 2),
        }
        found = in_turns(variants, chosen.rounds)
    texts = [where]
    for title, key in (
        ("from typing the command to the first step", "first"),
        ("from the last step of a segment to the first of the next", "between"),
        ("from the last step of all to the prompt", "last"),
    ):
        columns = []
        for runs in found.values():
            values = [getattr(run, key) for run in runs]
            columns.append(by_part(each for value in values for each in (value if key == "between" else [value])))
        rows = [[name, *(spread(column[name], 3) for column in columns)] for name in columns[0]]
        texts.append(table([title, *(f"{name}, seconds" for name in found)], rows))
    publish("handoff", "\n\n".join(texts), chosen.write)
