"""Distributed training: jobs are distributed to Ray actors, which may be on other machines."""
