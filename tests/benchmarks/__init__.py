"""This broker beside Apache Kafka on one machine, in one interleaved run: `python -m tests.benchmarks --help`."""
