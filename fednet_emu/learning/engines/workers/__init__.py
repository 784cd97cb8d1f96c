"""Training in processes of this machine, which share memory with the one that asks for it."""
