"""Tablets and the cell that hosts them: the base tablet, the scheme."""
