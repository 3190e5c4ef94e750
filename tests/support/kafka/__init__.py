"""Apache Kafka itself, run from Maven Central's jars: the measure of benchmarks, the oracle of compatibility tests."""
