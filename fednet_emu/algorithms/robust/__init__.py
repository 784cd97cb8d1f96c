"""Distributionally robust learning: ASPIRE (S2), AFL and DRFA."""
