"""Engines that train the jobs of a wavefront (jobs ready together): one by one, stacked, or in several threads."""
