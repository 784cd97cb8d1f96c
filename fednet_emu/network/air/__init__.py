"""The air: transfers that share a band, and how fast each of them proceeds."""
