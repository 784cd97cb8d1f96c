"""Learning without a server: every device has its own model, and averages that model with models of neighbours."""
