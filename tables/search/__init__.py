"""Search in the records of a topic, pure: what is looked for, which records match, where in a batch they may be. The
broker's workers and the commands use the same rules."""
