"""Configs of nodes and topics: showing and changing them."""
