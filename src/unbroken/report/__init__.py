"""What a working directory says of its runs: how they stand, and the page that shows it."""
