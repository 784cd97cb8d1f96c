"""Search for the best settings of a study: proposals of settings, outcomes of runs, and result files."""
