"""The receiver: interference, combining of antennas, and power control."""
