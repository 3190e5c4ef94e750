"""The requests, a file for each subject. Each registers its scripts when it is imported."""
