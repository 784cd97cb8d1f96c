"""Algorithms, one paper per file."""
