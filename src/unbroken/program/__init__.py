"""The child process and the contract with it."""
