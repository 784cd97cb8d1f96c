"""Rates in bit/s from SINR and bandwidth, mean rates over fading, and the best part of the band for a weak sender."""
