"""Base classes for the configurable parts of a scenario: components, slots and plug-ins."""
