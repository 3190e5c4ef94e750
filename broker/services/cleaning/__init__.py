"""Cleaning of compacted topics: what is due, the passes under way and those that ended, and how they are asked for."""
