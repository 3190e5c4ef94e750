"""Tests of properties, key stores, TLS options and contexts."""
