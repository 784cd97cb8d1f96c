"""Scenario files: parsing, includes, overrides, validation."""
