"""The error of a job that cannot continue; each kind has its module."""


class JobError(RuntimeError):
    """A job cannot start or continue; the text names the cause and the cure."""
