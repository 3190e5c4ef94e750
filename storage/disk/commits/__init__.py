"""The commit log: the rows of each round, in files of the index's directory or behind the round's payload."""
