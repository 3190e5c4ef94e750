"""Queues over HTTP: their consumers, pulled rows, sessions of producers, auto trim."""
