"""What a scenario is made of: components, slots with their kinds, plug-ins, and limits."""
