"""Requests that say the same as the one before on their connection: compared, not decoded; the rest is dispatched."""
