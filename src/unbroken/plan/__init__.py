"""What the Snakefile asks: which segments are to do, what each job needs, what the cluster has."""
