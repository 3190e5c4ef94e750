"""Connections, frames, dispatch, and the budgets of what clients send and read."""
