"""Access rules: how they decide, where they are stored, how they are changed."""
