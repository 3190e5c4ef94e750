"""What a client can do to a broker with sockets and well-made requests: each against a fresh process."""
