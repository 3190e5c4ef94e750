"""Facts and files by which both ends of a connection trust each other: properties, certificates, keys, TLS contexts."""
