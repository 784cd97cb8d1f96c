"""Figures that belong to one published method each."""
