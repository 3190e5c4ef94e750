"""Spark's format `ordered_table`: tables of a pqbroker as typed columns, in batches and streams, over Arrow."""
