"""Devices: where they are and how they move, when they are there, how fast they compute, and what power they draw."""
