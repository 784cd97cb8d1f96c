"""One file per contestant, each run as a program of its own: `python -m peers.contestants.flower W1 FOLDER`."""
