"""A Flower app that trains a classifier of digits with the strategy in its run configuration."""
