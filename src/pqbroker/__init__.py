"""A message broker that existing Kafka programs use without knowing."""

__version__ = "0.1.0"
