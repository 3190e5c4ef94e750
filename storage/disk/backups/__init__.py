"""Backups of an open cell: a copy of one moment in a directory of the same form; and restoring it."""
