"""What the handlers of Kafka's APIs share: declaration, context, look-ups, error codes, sessions."""
