"""Results of runs and studies as tables, without figures."""
