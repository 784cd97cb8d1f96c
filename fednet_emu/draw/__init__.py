"""Figures, report pages and traces of runs and studies."""
