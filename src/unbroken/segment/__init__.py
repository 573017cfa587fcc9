"""The life of one segment: supervise, classify, publish."""
