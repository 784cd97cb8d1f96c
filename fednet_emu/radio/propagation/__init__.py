"""Propagation: path loss, shadowing and line of sight of a link, from classical models to 3GPP TR 38.901."""
