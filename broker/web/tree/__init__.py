"""The tree of names (K.4): tables and topics by path, and what runs them under //sys. It is a view of what the other
doors answer; nothing is stored here."""
