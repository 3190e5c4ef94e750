"""Topics: found, made, deleted; their names, schemas and partitions; records checked before they are written."""
