"""Start the ranks of one training."""
