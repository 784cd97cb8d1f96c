"""Synchronous algorithms for devices whose data or amounts of work differ, one paper per file."""
