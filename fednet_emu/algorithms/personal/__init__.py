"""Personalised baselines: a model, or part of a model, stays on its device."""
