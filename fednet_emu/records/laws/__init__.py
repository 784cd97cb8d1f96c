"""Conservation laws for the records of every run."""
