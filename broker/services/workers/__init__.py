"""Tasks of clients in worker processes: pools with their slots and counters, one task's life, stretches as a worker is
shown them. Not what is asked and answered."""
