"""Base classes of the configurable models of a scenario: components, slots and plug-ins."""
