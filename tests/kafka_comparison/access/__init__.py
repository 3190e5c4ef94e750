"""Access rules compared with those of Apache Kafka's StandardAuthorizer: what each right lets a caller do."""
