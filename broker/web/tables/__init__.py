"""What the routes of tables do; loaded with the first request for a table."""
