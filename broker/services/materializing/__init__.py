"""Sorted tables that are fed from topics: tied to them, fed, paused, shown."""
