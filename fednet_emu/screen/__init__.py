"""Show progress in a terminal, in a notebook, or as lines of text."""
