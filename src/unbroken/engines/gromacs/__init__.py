"""GROMACS: how `mdrun` is started, stopped, read, saved from, and its parts joined.  Standard library alone."""
