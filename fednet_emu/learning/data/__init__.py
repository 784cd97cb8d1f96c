"""Training data: data sets, their partition among devices, and attacks on training data."""
