"""An engine for unbroken: a random walk that keeps its state in state.json."""
