"""5G NR: slots, grants and connections."""
