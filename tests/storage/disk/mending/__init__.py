"""Tests of how a cell survives damage."""
