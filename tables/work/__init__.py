"""The worker process: records become Arrow columns, SQL runs over them.

All but `process`, `messages` and `refusal` runs there alone, so that what it takes of memory and time is its own.
"""
