"""A Kafka-compatible message broker; existing clients work unchanged."""

__version__ = "0.1.0"
