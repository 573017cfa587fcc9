"""A word when nobody watches: what has happened to the runs, told once each by the user's own command."""
