"""Folder of modules that the processes of a live Flower app import in preference to other modules of the same name."""
