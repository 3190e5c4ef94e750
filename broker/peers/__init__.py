"""The peer link between the processes of a broker: framed, versioned, authenticated. Users say what it carries."""
