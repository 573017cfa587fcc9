"""Run the user's own training script of PyTorch, which saves and resumes by itself."""
