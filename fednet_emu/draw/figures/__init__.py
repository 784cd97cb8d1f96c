"""Figures of runs and studies."""
