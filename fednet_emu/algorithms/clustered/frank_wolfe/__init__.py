"""Clustered learning with a learned graph: the server's process, state, updates and Frank-Wolfe oracles."""
