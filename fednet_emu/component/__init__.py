"""The parts of a scenario: components, slots with their kinds, and plug-ins."""
