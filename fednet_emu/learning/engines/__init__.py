"""Engines that execute training jobs: one by one, stacked into one call, in threads, or in other processes."""
