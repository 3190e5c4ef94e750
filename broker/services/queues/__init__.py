"""Queues: consumers and producers over ordered tables and topics (E.13)."""
