"""Records of a run: the ledger, the run folder, and the conservation laws that check the ledger."""
