"""Verifies a stopped cell: every checksum, reference and invariant; says what is wrong, where, and what to do."""
