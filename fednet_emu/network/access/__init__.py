"""Access schemes: how simultaneous transmitters share one band."""
