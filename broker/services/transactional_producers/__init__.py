"""Kafka's transactions: the coordinator of transactional producers, on the coordinator tablets."""
