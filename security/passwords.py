"""Passwords as commands take them: from the environment, from a file, or typed. Never from an argument: others see it.
"""

import getpass
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pqbroker.security.client_login import TOKEN_BYTES_MAX
from pqbroker.security.errors import SecurityError

PASSWORD: Final = "PQBROKER_PASSWORD"
PASSWORD_FILE: Final = "PQBROKER_PASSWORD_FILE"
NEW_PASSWORD: Final = "PQBROKER_NEW_PASSWORD"
TOKEN: Final = "PQBROKER_TOKEN"
PASSWORD_BYTES_MAX: Final = 1024


def given_password(environment: Mapping[str, str], name: str = PASSWORD) -> str | None:
    """Return the password of a variable, or of the file that NAME_FILE names, without the end of its line; None if
    neither is set. SecurityError."""
    most = TOKEN_BYTES_MAX if name == TOKEN else PASSWORD_BYTES_MAX
    path = environment.get(f"{name}_FILE")
    if not path:
        return check_password(environment[name], most) if environment.get(name) else None
    try:
        text = Path(path).read_bytes()[: most + 2].decode()
    except OSError as error:
        raise SecurityError(f"{name}_FILE: cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SecurityError(f"{name}_FILE: {path} is not UTF-8") from None
    return check_password(text.removesuffix("\n").removesuffix("\r"), most)


def password_for(user: str, environment: Mapping[str, str], *, is_new: bool = False) -> str:
    """Return the password of a user: one that is given, or else typed at a terminal, a new one twice. SecurityError."""
    found = given_password(environment)
    return found if found is not None else _typed(user, PASSWORD, is_new=is_new)


def _typed(user: str, variable: str, *, is_new: bool) -> str:
    if not sys.stdin.isatty():
        raise SecurityError(f"no password for {user}: set {variable}, or {variable}_FILE to a file that has it")
    typed = check_password(getpass.getpass(f"password of {user}: "))
    if is_new and getpass.getpass("the same once more: ") != typed:
        raise SecurityError("the two passwords differ; nothing was changed")
    return typed


def new_password_for(user: str, environment: Mapping[str, str]) -> str:
    """Return a password that a user is to have: one that is given, or else typed at a terminal twice. SecurityError."""
    found = given_password(environment, NEW_PASSWORD)
    return found if found is not None else _typed(user, NEW_PASSWORD, is_new=True)


def check_password(password: str, bytes_max: int = PASSWORD_BYTES_MAX) -> str:
    """Return a password that can be one. SecurityError."""
    if not password:
        raise SecurityError("the password is empty; give one")
    if "\0" in password:
        raise SecurityError("the password has a NUL character; give another")
    size = len(password.encode())
    if size > bytes_max:
        raise SecurityError(f"the password has {size} bytes; the most allowed is {bytes_max}")
    return password
