"""Registries by the names that settings give them."""

from typing import NamedTuple


class NamedRegistry(NamedTuple):
    """A registry: its name in settings, its address, and the file with credentials, empty without one."""

    name: str
    address: str
    config_file: str = ""
