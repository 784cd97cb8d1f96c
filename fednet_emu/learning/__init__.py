"""Data, models and the deferred graph: what is learnt, whatever the time."""
