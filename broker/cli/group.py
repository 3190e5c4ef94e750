"""`pqbroker group`: consumer groups."""

from pqbroker.broker.cli.command import family

app = family("Look at consumer groups, move their offsets, delete them.")
