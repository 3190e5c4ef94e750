"""What a salvage gives up of a stopped node, by name, and the rows that make up for it: nothing is given twice."""
