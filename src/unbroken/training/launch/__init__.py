"""Starting the ranks of one training."""
