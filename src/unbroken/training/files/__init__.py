"""Write files and folders that are complete or absent, for programs without the rest."""
