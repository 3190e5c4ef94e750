"""Sorted tables over tablets: their stores and logs, chunks, lookups, and the tablets' starts and moves."""
