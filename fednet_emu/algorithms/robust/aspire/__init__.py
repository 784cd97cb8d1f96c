"""ASPIRE-EASE and its variants, in pieces: updates, planes, worker, master, pace, wire and the flow."""
