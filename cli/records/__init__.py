"""Records through aiokafka: writing, reading, measuring; how a record becomes a line and a line a record."""
