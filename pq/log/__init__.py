"""One partition, pure: what it decides on state, input and time. No loop, no clock, no disk."""
