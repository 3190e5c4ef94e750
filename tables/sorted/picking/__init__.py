"""Background work of sorted tables, pure: which stores rotate, which chunks are compacted or partitioned, and why."""
