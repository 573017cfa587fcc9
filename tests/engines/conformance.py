"""The conformance suite's chains, started quickly; each engine's case is in its own tests."""

import os
import sys
from pathlib import Path

from support.prefork import Started, start_command

from unbroken.config.package_files import root_folder
from unbroken.engines.found import found_engines
from unbroken.engines.testing.chain import Case, compared
from unbroken.engines.testing.kills import KilledChain

__all__ = ["ROOT", "Case", "Chain", "compared", "engines"]

ROOT = root_folder()
SNAKEMAKE = Path(sys.executable).with_name("snakemake")


def engines() -> list[str]:
    """Return the engines that this package brings."""
    return sorted(name for name, engine in found_engines().items() if engine.is_ours)


class Chain(KilledChain):
    def start(self, *arguments: str) -> Started:
        command = [SNAKEMAKE, "-s", ROOT / "Snakefile", "--cores", "1", *arguments]
        with (self.folder / "driver.log").open("a") as log:
            return start_command(list(map(str, command)), self.folder, os.environ, log)
