"""Blobs of tablets: ids, put, get, range, discover, block, collect; channels' history and limits."""
