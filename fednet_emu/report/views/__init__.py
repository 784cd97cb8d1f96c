"""What was measured, as tables: no drawing."""
