"""Admin REST, health and metrics."""
