"""Topics as tables. Rules, pure: types, schemas, rows, attributes, paths, mount states. `work/` runs SQL over both."""
