"""The medium: what is on the air of a band, at which rates, and when it ends."""
