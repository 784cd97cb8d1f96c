"""Data sets, partitions that divide samples among devices, and attacks on training data."""
