"""From what the user wrote to complete runs, or to all mistakes at once."""
