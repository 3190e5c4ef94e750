"""Values whose schema lies in a registry: Confluent's wire format, Avro, Protobuf and JSON Schema, read within limits.

It needs neither a broker nor columns: workers, commands and Spark read values by it.
"""
