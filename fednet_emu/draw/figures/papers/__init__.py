"""Figures of single published methods."""
