"""A run: a scenario is built, costed, played and recorded."""
