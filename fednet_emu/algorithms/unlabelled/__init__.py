"""Learning from unlabelled devices: FedUL and its server-side supervision (S4)."""
