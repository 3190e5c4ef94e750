"""One file per API key: request and response, all versions together."""
