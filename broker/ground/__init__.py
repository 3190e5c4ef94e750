"""The ground of services and doors: who may do what, refusals, metrics, listeners, turns of the loop."""
