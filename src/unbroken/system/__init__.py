"""Access the machine: files that are complete or absent, clock, host, digests."""
