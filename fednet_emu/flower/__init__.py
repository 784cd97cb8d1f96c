"""Flower apps on the emulated network: an app is an algorithm with its own data and model.

Flower is imported only when an app runs.
"""
