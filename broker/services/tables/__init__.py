"""Changes of tables: made, mounted, resharded, altered, converted, trimmed; rows inserted and staged."""
