"""Services by which every door changes topics, tables, groups and cells: plain arguments, typed errors, no request."""
