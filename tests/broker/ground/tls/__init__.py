"""Tests of TLS under both doors."""
