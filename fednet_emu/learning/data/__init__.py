"""Training data: datasets, their partition among devices, and attacks on them."""
