"""Path loss, line of sight and building entry loss of 3GPP TR 38.901 (0.5 to 100 GHz), one module per type of site.

The speed of light is 3.0e8 m/s, as the report prescribes. The optional formulas of Table 7.4.1-1 are not implemented.
"""
