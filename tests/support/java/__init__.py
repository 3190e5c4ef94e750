"""Programs of Kafka's Java clients and tools: compiled by javac when a test first needs them, driven over lines."""
