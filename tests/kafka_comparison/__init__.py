"""The standing comparison with Apache Kafka: the same requests go to both brokers, and their answers are compared.

`python -m tests.kafka_comparison` runs it; `scripts/` has the requests, `differences.tsv` each difference with its
reason.
"""
