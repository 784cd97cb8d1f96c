"""Learning from devices with unlabelled data: FedUL, and extensions with labelled samples on the server (S4)."""
