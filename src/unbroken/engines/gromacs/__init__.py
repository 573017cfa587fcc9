"""Start, stop and read GROMACS's `mdrun`, save from it, and join its parts.  Standard library alone."""
