"""Traffic of other users in the bands of the federation: settings, arrivals of files, and shares of the bands."""
