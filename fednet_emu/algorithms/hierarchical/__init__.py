"""Algorithms with edge servers between the devices and the cloud."""
