"""TLS under both doors: what a listener shows and trusts, handshakes under way, connections under encryption."""
