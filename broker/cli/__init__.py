"""The commands besides `serve`: a client of any Kafka broker, over the network only."""
