"""Sorted tables, pure: keys as bytes, rows and their log entries, the memory store, chunks, versions, picking."""
