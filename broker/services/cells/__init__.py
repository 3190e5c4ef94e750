"""The cells of a node: the system cell and its owner, the others beside it, and the tablets that move between them."""
