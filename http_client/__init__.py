"""The protocol of `pqbroker.client`: calls of tables and SQL over HTTP, as requests and answers, and two transports."""
