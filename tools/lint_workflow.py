"""`snakemake --lint` over the workflow, except for the advice that we do not follow, each with its reason."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

# Title of the advice: why it does not apply here. Snakemake has no switch to quiet a single one.
NOT_FOLLOWED = {
    "Specify a conda environment or container for each rule.": (
        "the engine's environment is entered by the child process, as the run's `modules` and `enter` say; "
        "the Python that watches the clock is always the tested one"
    ),
}


def main() -> int:
    """Print what is left of the linter's advice; 1 if anything is, or if the workflow could not be read."""
    snakemake = str(Path(sys.executable).with_name("snakemake"))
    command = [snakemake, "--lint", "--workflow-profile", "none", *sys.argv[1:]]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    advice = list(read_advice(done.stdout))
    if done.returncode != 0 and not advice:
        print(done.stdout, file=sys.stderr)
        return 1
    remaining = [f"{place}: {title}" for place, title in advice if title not in NOT_FOLLOWED]
    print("\n".join(remaining) or "snakemake --lint: clean")
    return 1 if remaining else 0


def read_advice(output: str) -> Iterator[tuple[str, str]]:
    """Where and what, for each piece of advice in the linter's text (its json switch prints the same text)."""
    place = ""
    for line in output.splitlines():
        if header := re.fullmatch(r"Lints for (.*):", line):
            place = header[1]
        elif item := re.fullmatch(r"    \* (.*):", line):
            yield place, item[1]


if __name__ == "__main__":
    sys.exit(main())
