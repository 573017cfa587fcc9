"""Where a run's time went and when it will be done: from its history alone, without a file or a process."""
