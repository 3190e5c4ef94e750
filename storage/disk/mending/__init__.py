"""Survival of a cell's damage: second copies of what no start can do without, and salvage of its commit log."""
