"""Everything that can be set: names, types, defaults, limits, documentation."""
