"""Live mode: real processes whose packets pass through a scenario's radio in real time."""
