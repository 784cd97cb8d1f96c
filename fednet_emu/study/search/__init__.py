"""Search for the best settings of a study: proposals of settings, evaluation of their runs, and result files."""
