"""`pqbroker crashtest`: kills of a broker, the load, and the books that are compared with the logs."""
