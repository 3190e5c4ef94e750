"""A cell hosts tablets on one shard."""
