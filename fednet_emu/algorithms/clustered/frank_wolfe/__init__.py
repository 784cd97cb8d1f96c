"""Clustered learning with a learned graph: flow, updates, oracles, the discrete reference and the choice of alpha."""
