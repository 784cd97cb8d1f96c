"""Implementations of one training step for the models of many devices at once."""
