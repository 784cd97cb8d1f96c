"""Studies: many runs that answer one question, over a grid of settings and seeds."""
