"""Registries of schemas that topics name, and records decoded by them, which a worker does."""
