"""Personalised learning: each device has a model, or part of a model, of its own."""
