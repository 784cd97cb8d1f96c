"""Federated learning simulators, hand-written loops and fednet_emu on the same work, in one interleaved run."""
