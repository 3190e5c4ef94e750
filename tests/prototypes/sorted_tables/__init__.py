"""The block of sorted tables before its first user: with the store and the flush it moves to tables/sorted."""
