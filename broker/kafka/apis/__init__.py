"""Shared parts of the handlers of Kafka's APIs: declaration, context, look-ups, error codes, sessions."""
