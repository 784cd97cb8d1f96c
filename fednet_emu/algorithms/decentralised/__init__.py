"""Learning without a server: every device has a model of its own, and averages it with those of its neighbours."""
