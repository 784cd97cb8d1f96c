"""The run folder: its files, written whole or not at all, and their checksums."""
