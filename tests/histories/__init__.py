"""A checker of histories: what transactions read and wrote, and which promise of snapshot isolation that breaks."""
