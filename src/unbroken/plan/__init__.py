"""Answer the Snakefile: which segments are to do, what each job needs, what the cluster has."""
