"""Studies: sets of runs whose settings come from a grid or a search, and which are repeated with several seeds."""
