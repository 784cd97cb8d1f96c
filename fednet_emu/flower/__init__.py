"""Flower apps on the emulated network: an app is an algorithm that brings its own data and model.

The package `flwr` is imported only when an app runs.
"""
