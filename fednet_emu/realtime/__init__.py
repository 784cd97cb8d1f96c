"""Live mode: the packets of real processes pass through a scenario's emulated radio in real time."""
