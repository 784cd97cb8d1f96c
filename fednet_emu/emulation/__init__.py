"""A run of a scenario: building, cost estimate, simulation and records."""
