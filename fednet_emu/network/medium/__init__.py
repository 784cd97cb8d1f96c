"""The medium: the transmissions of a band, their rates, and when they end."""
