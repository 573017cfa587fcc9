"""What every training does, whatever the framework."""
