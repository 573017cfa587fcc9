"""Share what every training does, whatever the framework."""
