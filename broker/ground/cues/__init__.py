"""What tests may make happen on a broker for tests: its clock, its store, faults of its answers."""
