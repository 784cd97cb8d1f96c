"""Clustered learning with a learned graph: process, updates, oracles, choice of alpha."""
