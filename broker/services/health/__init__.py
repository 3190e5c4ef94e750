"""Health of the node: what is wrong with it, since when, what that affects, and the cure; every door reads it here."""
