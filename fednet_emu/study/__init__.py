"""Studies: sets of runs whose settings are chosen by a grid or a search, and which are repeated with several seeds."""
