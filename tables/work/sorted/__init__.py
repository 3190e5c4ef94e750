"""Sorted tables in a worker: flushes, merges and scans of versions by whole columns."""
