"""Hold what is known of programs that people run: each a YAML file, which stands for the settings of a run."""
