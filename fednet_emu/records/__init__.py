"""What a run leaves behind: the ledger while it runs, the run folder, and the conservation laws."""
