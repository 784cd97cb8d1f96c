"""Figures, report pages and traces: how results are drawn."""
