"""Ways to make one step of many devices' models at once."""
