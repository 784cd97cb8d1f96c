"""The folder that Python finds first in the processes of a Flower app that is played live."""
