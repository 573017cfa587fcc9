"""PyTorch: the user's own training script, which saves and resumes by itself."""
