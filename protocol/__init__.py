"""Kafka's wire format: pure, imports nothing of ours."""
