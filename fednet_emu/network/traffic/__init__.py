"""Traffic of other users in the bands of the federation: settings, files over time, and their share of the bands."""
