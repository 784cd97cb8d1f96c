"""Public classes of results (runs, studies, rankings, comparisons, searches), and the functions that return them."""
