"""Searching the settings of a study: what is proposed, what became of it, and which of them reach the target best."""
