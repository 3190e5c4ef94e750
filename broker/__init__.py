"""The server: connections, dispatch, Kafka APIs, HTTP."""
