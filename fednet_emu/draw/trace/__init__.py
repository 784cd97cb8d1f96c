"""Perfetto traces of runs: zoomable and searchable timelines of all devices."""
