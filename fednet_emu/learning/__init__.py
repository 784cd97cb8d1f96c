"""Data, models and the deferred graph: learning, independent of simulated time."""
