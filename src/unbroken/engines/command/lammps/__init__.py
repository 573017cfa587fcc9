"""Makes an input script of LAMMPS one that can be stopped and resumed, or refuses it with the line in the way."""
