"""What `unbroken exec` costs a program that ends at once: alone, the first time, and called again when it is done."""

import itertools
import sys
import tempfile
from pathlib import Path

from support.measure import cost_of, in_turns, machine, options, publish, spread, table

if __name__ == "__main__":
    chosen = options(__doc__, rounds=(int, 10, "how often"))
    where = machine()
    with tempfile.TemporaryDirectory() as place:
        folder, number = Path(place), itertools.count()
        called = [sys.executable, "-m", "unbroken", "exec", "--name"]
        cost_of([*called, "done", "--", "true"], folder)
        variants = {
            "the program alone": lambda: cost_of(["true"], folder),
            "Python alone": lambda: cost_of([sys.executable, "-c", ""], folder),
            "unbroken exec, first call": lambda: cost_of([*called, f"new-{next(number)}", "--", "true"], folder),
            "unbroken exec, done before": lambda: cost_of([*called, "done", "--", "true"], folder),
        }
        found = in_turns(variants, chosen.rounds)
    rows = [
        [name, spread((cost.wall_seconds for cost in costs), 3), spread((cost.cpu_seconds for cost in costs), 3)]
        for name, costs in found.items()
    ]
    publish("exec_cost", f"{where}\n\n{table(['`true`', 'seconds', 'of them CPU'], rows)}", chosen.write)
