"""One file per Kafka API, named as the API."""
