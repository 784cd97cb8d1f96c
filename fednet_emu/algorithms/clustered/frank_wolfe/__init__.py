"""Clustered learning with a learned graph: process, server, updates and oracles."""
