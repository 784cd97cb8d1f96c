"""Distributed training on Ray actors, which may run on other machines."""
