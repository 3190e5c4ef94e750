"""Cues of tests to a broker for tests: faults of requests, and a clock that can be moved."""
