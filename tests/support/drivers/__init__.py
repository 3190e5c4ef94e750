"""One driver per client library, all with the same verbs, so that a test says once what every client must see."""
