"""Figures, tables and readable numbers from recorded runs; depends on run folders, not on the emulation itself."""
