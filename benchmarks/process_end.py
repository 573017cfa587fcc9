"""What the end of a segment's process costs: from the last line of its program until it is gone.

Python's collector looks through all that torch has loaded once more; in a segment unbroken takes that out of its sight.
"""

import os
import subprocess
import sys
import time

from support.measure import in_turns, machine, options, publish, ratios, spread, table

PROGRAM = "import time, unbroken.training.torch.training; print(time.monotonic(), flush=True)"


def end_seconds(program: str, environment: dict[str, str]) -> float:
    """From the moment that the program prints at its end until the process is gone."""
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    return time.monotonic() - float(done.stdout)


if __name__ == "__main__":
    chosen = options(__doc__, rounds=(int, 10, "how often"))
    where = machine("torch")
    os.environ.pop("UNBROKEN_SAVE", None)
    found = in_turns(
        {
            "Python alone": lambda: end_seconds("import time; print(time.monotonic(), flush=True)", {}),
            "torch, started by hand": lambda: end_seconds(PROGRAM, {}),
            "torch, in a segment": lambda: end_seconds(PROGRAM, {"UNBROKEN_SAVE": "save"}),
        },
        chosen.rounds,
    )
    by_hand = found["torch, started by hand"]
    rows = [[name, spread(seconds, 3), spread(ratios(seconds, by_hand))] for name, seconds in found.items()]
    publish("process_end", f"{where}\n\n{table(['program', 'seconds', 'times by hand'], rows)}", chosen.write)
