# Table of contents; everything stands in workflow/.
# Usage: edit config/config.yaml, then type `snakemake` (this machine) or `snakemake --profile slurm` (the cluster).

from snakemake.utils import min_version

min_version("9.27")


include: "workflow/Snakefile"


# Every run to its goal, or as far as its segments reach.
rule all:
    default_target: True
    input:
        rules.segments.input,
