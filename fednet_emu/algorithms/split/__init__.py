"""Split learning: a model cut in two between the devices and the server."""
