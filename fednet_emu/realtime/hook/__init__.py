"""The folder that Python searches first in the processes of a live Flower app."""
