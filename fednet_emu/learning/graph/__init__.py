"""The graph of the learning computations, which are executed only when one of their results is read."""
