"""How a cell survives damage: second copies of what no start can do without."""
