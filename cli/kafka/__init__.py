"""Requests of administration to a Kafka cluster, each a question and its answer, and what the answers say."""
