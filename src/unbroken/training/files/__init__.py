"""Files and folders that are whole or not there, for programs without the rest."""
