"""The DMTCP engine: any unmodified process, checkpointed from outside."""
