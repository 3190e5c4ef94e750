"""One process: start and stop, metrics, what it does from time to time."""
