"""One file per resource under /v1."""
