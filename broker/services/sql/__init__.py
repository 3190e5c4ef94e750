"""SQL on the broker's side: worker processes, and one query's way through one. Nothing here looks into a record."""
