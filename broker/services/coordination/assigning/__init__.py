"""Assignors of the broker: which member of a group reads which partition. Pure."""
