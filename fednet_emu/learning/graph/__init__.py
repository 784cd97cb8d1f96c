"""The deferred learning graph: values that are computed only when they are read."""
