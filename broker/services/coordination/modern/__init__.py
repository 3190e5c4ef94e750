"""Consumer groups of KIP-848: the broker shares partitions out, and each member is led to its own. Pure: time is an
argument."""
