"""Federated-learning algorithms, one file per paper."""
