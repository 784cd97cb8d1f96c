"""Asynchronous algorithms: the server does not wait for all devices, and updates may be of older models."""
