"""The door for Kafka clients: connections, lanes, and a handler for each API."""
