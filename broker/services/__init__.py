"""What every door calls to change topics, tables, groups and cells: plain arguments, typed errors, no request."""
