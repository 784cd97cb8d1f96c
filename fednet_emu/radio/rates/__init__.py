"""Rates: bit/s from SINR and bandwidth, means over fading, and the part of a band that serves a weak sender best."""
