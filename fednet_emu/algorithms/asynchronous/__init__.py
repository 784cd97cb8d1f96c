"""Asynchronous algorithms: the server does not wait for all devices, and updates may start from older models."""
