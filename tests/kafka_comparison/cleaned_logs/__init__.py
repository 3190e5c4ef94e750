"""Logs of compacted topics as the cleaner of Apache Kafka leaves them, beside ours."""
