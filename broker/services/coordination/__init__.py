"""Consumer groups: the coordinator tablets that host them, and each protocol's rules."""
