"""Devices: placement, mobility, availability, processors and power."""
