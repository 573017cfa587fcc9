"""What the machine gives: files that are whole or not there, clock, host, digests."""
