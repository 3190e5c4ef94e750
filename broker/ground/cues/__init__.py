"""Cues that tests may give to a broker for tests: its clock, its store, faults of its answers."""
