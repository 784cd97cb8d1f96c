"""Learning without a server: every device has its own model, and averages it with the models of its neighbours."""
