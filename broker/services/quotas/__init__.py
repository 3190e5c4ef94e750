"""Quotas of clients: whose they are, what was used of them, how they are changed."""
