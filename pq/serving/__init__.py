"""Service of partitions: topics, the PQ tablet, the partition server, the writer."""
