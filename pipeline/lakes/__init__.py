"""The job `land`: a topic in a directory of Parquet, each batch once."""
