"""The interface of an engine, and the engines."""
