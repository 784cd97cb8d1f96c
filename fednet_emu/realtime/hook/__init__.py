"""Folder in which Python looks up modules first, in the processes of a live Flower app."""
