"""Data directories that earlier commits of this repository made, and what is read of them."""
