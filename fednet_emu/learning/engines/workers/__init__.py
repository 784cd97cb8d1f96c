"""Training in processes of this machine, which share memory with the main process."""
