"""Transactions over tables, as the doors ask for them."""
