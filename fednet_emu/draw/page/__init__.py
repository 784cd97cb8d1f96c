"""Pages of HTML that show results in a browser, each a single file that needs no network."""
