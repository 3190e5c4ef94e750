"""Losses of a salvage of a stopped node, by name, and the rows that make up for them: nothing is given twice."""
