"""Public results: runs, studies, rankings, comparisons and searches, and the functions that return them."""
