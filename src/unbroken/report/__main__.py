"""`python -m unbroken.report EVERY WRITER [CONFIG]`: write the page of this folder; for processes of our own.

It loads none of the command line, which takes longer than the page of some runs.
"""

from __future__ import annotations

import sys
from pathlib import Path

from unbroken.errors import UnbrokenError
from unbroken.job.background import PAGE
from unbroken.report.facts import Promise
from unbroken.report.known import CONFIG
from unbroken.report.page import write_report


def main(every: str, writer: str, config: str = str(CONFIG)) -> None:
    """Write the page; an error becomes its lines and exit code 1."""
    try:
        write_report(Path(), Path(config), (), PAGE, Promise(float(every), writer), is_patient=True)
    except (UnbrokenError, OSError) as error:
        print(error, file=sys.stderr)
        raise SystemExit(1) from None


main(*sys.argv[1:])
