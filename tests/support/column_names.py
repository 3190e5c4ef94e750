"""Names of columns that are hostile in SQL: pairs that are one name when case is folded, or that only look alike."""

from typing import Final

CLASHING: Final = (
    ("a", "A"), ("Timestamp_MS", "timestamp_ms"), ('x"y', 'X"Y'), ("a.b", "A.b"),
    ("select", "SELECT"), ("topic_0", "TOPIC_0"), ("É", "é"), ("straße", "STRASSE"), ("ß", "ẞ"), ("s", "ſ"),
    ("k", "\u212a"), ("å", "\u212b"), ("σ", "ς"), ("ﬁ", "fi"), ("Ǆ", "ǆ"),
)  # fmt: skip
"""Keywords, quotes and dots; letters of which Unicode has several capitals, or one for two small ones."""
NEAR: Final = (
    ("i", "ı"), ("i", "İ"), ("é", "e\u0301"), ("a.b", "a_b"), ("a", "а"), ("x", "x "), ("x", "x\u200b"), ("o", "0"),
    ("'x'", '"x"'), ("--x", "-- x"),
)  # fmt: skip
"""Dotless i, composed and combined letters, Cyrillic, blanks that nobody sees."""
