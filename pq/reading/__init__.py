"""Reading of a partition: the reader, the cache, searches by time, ranges sent from files."""
