"""Conservation laws that the records of every run are checked against."""
