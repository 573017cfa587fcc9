"""Everything about a run that lies on disk: layout, identity, lease, history, checkpoints, results."""
