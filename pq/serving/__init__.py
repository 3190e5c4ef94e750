"""What runs partitions: topics, the PQ tablet, the partition server, the writer."""
