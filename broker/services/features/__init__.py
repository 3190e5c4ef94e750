"""Kafka's features: levels that the whole cluster goes by, and that clients go by too (KIP-584)."""
