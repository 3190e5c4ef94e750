"""The tablet floor: engine, BlobStorage, tablets, KV."""
