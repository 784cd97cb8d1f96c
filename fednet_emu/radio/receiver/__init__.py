"""The receiver: noise and interference, antennas, power control, and sums over the air."""
