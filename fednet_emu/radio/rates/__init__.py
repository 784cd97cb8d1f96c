"""Rates in bit/s from SINR and bandwidth, means of rates over fading, and the best part of a band for a weak sender."""
