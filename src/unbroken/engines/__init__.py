"""Define the interface of an engine, and hold the engines."""
