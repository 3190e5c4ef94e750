"""Sorted tables, for every door: made, mounted, written, looked up."""
