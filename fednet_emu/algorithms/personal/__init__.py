"""Personalised baselines: a model, or a part of one, that stays on its device."""
