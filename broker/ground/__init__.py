"""What services and doors stand on: who may do what, refusals, metrics, listeners, turns of the loop."""
