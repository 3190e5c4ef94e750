"""How a cell survives damage: second copies of what no start can do without, and the salvage of its commit log."""
