"""Transactions over tablets of any kind: their stored forms, the states of a commit, its participants."""
