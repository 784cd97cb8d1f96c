"""Satellites: their elevation above ground stations, and their contact windows."""
