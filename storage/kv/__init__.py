"""The KV tablet: commands, the plan of a request, its rows, bounded reads."""
