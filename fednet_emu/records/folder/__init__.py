"""The run folder: atomically written files, and their checksums."""
