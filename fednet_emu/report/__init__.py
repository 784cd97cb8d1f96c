"""Recorded runs as figures, tables and readable numbers; knows run folders, never the emulation that wrote them."""
