"""ASPIRE-EASE and its variants: the algorithm, its updates and cutting planes, and the states of master and workers."""
