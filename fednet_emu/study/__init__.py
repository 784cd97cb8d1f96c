"""Studies: many runs that answer one question, with the settings of a grid or a search, and several seeds."""
