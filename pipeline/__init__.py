"""PySpark against the broker; talks to it over the network only."""
