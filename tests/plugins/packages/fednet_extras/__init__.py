"""A package that adds six kinds to six slots, five of them out of one module."""
