"""The deferred graph of the learning computations, whose values are computed only when they are read."""
