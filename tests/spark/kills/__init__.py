"""`kill -9` of jobs and of their broker, in rounds: afterwards each row is there once."""
