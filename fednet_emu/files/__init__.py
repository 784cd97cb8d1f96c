"""Files of data that the package reads, wherever they come from."""
