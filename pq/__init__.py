"""The log: PersQueue partitions as pure state machines, and the tablet that runs them."""
