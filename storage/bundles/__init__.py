"""Bundles of cells: what they are, where tablets are placed, the hive that knows them, the cells that are open."""
