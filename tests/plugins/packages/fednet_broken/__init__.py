"""A package that cannot be imported, and offers what is no component."""

raise ImportError("libbroken.so is missing")
