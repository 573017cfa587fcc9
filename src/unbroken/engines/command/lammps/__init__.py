"""Make an input script of LAMMPS one that can be stopped and resumed, or refuse it with the line in the way."""
