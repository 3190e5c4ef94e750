"""Jobs that write records into a topic, each record once, over kills of the job and of the broker."""
