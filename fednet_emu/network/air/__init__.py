"""Transfers that share a radio band, and the rate of each transfer."""
