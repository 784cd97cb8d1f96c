"""Satellites: where they are in the sky of stations on the ground, and when they pass."""
