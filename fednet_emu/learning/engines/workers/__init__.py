"""Training in worker processes on this machine, which share memory with the main process."""
