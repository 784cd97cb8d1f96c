"""The medium: the transmissions in one band, their rates, and their end times."""
