"""ASPIRE-EASE and its variants: algorithm, updates, planes, pace, and the states of master and worker."""
