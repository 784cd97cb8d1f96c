"""Split learning: the layers of a model are split between the devices and the server."""
