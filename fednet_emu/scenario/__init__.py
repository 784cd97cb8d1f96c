"""From a scenario file to a finished run folder."""
