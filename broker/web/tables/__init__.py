"""Functions behind the routes of tables; loaded with the first request for a table."""
