"""Run the user's own training script of JAX, which saves and resumes by itself."""
