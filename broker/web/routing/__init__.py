"""Routes: their parameters, bodies and answers, and the form of problems."""
