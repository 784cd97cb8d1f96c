"""Clustered learning: Frank-Wolfe graph learning (S0), IFCA and CFL."""
