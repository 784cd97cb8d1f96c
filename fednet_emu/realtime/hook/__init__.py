"""Folder in which the processes of a live Flower app look up Python modules first."""
