"""HTML pages of results, each a single file without network access."""
