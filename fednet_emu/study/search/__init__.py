"""Search for the best settings of a study: proposals of settings, judgement of their runs, and result files."""
