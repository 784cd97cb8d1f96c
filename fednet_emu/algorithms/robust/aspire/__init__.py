"""ASPIRE-EASE and its variants: the flow, updates, planes, pace, and what master and worker keep and record."""
