"""ASPIRE-EASE and its variants: algorithm, updates, cutting planes, and the states of the master and the workers."""
