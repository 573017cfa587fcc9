"""Check that an engine keeps the promises: the conformance suite, for the tests of a package that brings one."""

from unbroken.engines.testing.chain import BrokenPromiseError, Case
from unbroken.engines.testing.checks import check_engine

__all__ = ["BrokenPromiseError", "Case", "check_engine"]
