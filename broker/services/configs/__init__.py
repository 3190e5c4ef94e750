"""What nodes and topics are set to: showing and changing it."""
