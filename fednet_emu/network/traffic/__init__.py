"""Traffic of users outside the federation in its bands: settings, arrivals of files, and shares of the bands."""
