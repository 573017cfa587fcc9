"""For engine tests: a script of scripts/ as a module, without Snakemake."""

import importlib.util

import pytest

from longhaul.installed import root_folder


@pytest.fixture
def load_script():
    def load(name):
        spec = importlib.util.spec_from_file_location(name, root_folder() / "scripts" / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load
