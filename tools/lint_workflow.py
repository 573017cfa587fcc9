"""`snakemake --lint` over the workflow, except for the advice that we do not follow, each with its reason."""

import json
import subprocess
import sys
from pathlib import Path

# Title of the advice: why it does not apply here.
NOT_FOLLOWED = {
    "Specify a conda environment or container for each rule.": (
        "the engine's environment is entered by the child process, as the run's `modules` and `enter` say; "
        "the Python that watches the clock is always the tested one"
    ),
}


def main() -> int:
    """Print what is left of the linter's advice; 1 if anything is."""
    snakemake = str(Path(sys.executable).with_name("snakemake"))
    command = [snakemake, "--lint", "json", "--workflow-profile", "none", *sys.argv[1:]]
    done = subprocess.run(command, capture_output=True, text=True)
    begin = done.stdout.find("{")
    if begin < 0:
        print(done.stdout + done.stderr, file=sys.stderr)
        return done.returncode
    remaining = list(_read_advice(json.loads(done.stdout[begin:])))
    print("\n".join(remaining) or "snakemake --lint: clean")
    return 1 if remaining else 0


def _read_advice(report: dict[str, list[dict[str, object]]]) -> list[str]:
    return [
        f"{found['for']}: {lint['title']}"
        for kind in ("snakefiles", "rules")
        for found in report.get(kind) or []
        for lint in found["lints"]
        if lint["title"] not in NOT_FOLLOWED
    ]


if __name__ == "__main__":
    sys.exit(main())
