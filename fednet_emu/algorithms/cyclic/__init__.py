"""Cyclic participation with overlapping groups (S1)."""
