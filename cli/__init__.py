"""The command line: a client of any Kafka broker and of our HTTP."""
