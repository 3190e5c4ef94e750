"""Searches in topics on the broker's side: worker processes, and one search's way through one. Records are decoded in
the worker alone."""
