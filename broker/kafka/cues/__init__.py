"""What tests make happen on cue, on a broker for tests: faults of requests, and a clock that can be moved."""
