"""Classic consumer groups: who is a member, in which generation, with what assignment. Pure: time is an argument."""
