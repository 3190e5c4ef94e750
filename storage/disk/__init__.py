"""The disk engine: a RocksDB index, blob segments, the commit thread, the directory and its lock."""
