"""Commits over several tablets: how one is performed, what a crash leaves of it, and the transactions that are open."""
