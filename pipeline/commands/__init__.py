"""The commands of `pqbroker-pipeline`, one file each: their arguments, and the job they make of them."""
