"""Local files as relations of SQL: opened by name in one directory, read by pyarrow."""
