"""How the jobs of a wavefront are trained: one by one, stacked, or spread over threads."""
