"""
Taking turns or sharing the band
================================

x
"""

print(1)
