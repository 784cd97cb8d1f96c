"""Clustered learning with a learned graph: process, updates, oracles, discrete reference, choice of alpha."""
