"""Tests of what a salvage gives up."""
