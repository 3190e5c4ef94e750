"""Profiles: by name, a cluster's addresses and the security of connections to it, in a file of the user's.

The file never holds a password: a profile names a file in the form of Kafka's client.properties, or a user. A profile
stands in place of four variables of the environment as a whole, so that no password of one cluster goes to another.
"""

import fcntl
import json
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

BROKER_VARIABLE: Final = "PQBROKER_BROKER"
HTTP_VARIABLE: Final = "PQBROKER_HTTP"
CONFIG_VARIABLE: Final = "PQBROKER_COMMAND_CONFIG"
USER_VARIABLE: Final = "PQBROKER_USER"
PROFILE_VARIABLE: Final = "PQBROKER_PROFILE"
NO_PROFILE: Final = "none"
"""Name that stands for no profile."""
PROFILES_MAX: Final = 1000
PROFILES_BYTES_MAX: Final = 1 << 20
_FORMAT: Final = 1
_KNOWN_SHOWN_MAX: Final = 20
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_OWNER_ONLY: Final = 0o600
_OWN_DIRECTORY: Final = 0o700
_WRITABLE_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH


class ProfileError(ValueError):
    """A profile, or the file of profiles, that is not usable; the text names cause and cure."""


@dataclass(frozen=True, slots=True)
class Profile:
    """A cluster's addresses and the security of connections to it."""

    name: str
    broker: str
    http: str | None = None
    """None: the address that the broker names."""
    command_config: str | None = None
    user: str | None = None

    def in_place_of(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return the environment with this profile in place of its addresses and their security."""
        fields = {
            BROKER_VARIABLE: self.broker, HTTP_VARIABLE: self.http, CONFIG_VARIABLE: self.command_config,
            USER_VARIABLE: self.user,
        }  # fmt: skip
        kept = {name: value for name, value in environment.items() if name not in fields}
        return kept | {name: value for name, value in fields.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Profiles:
    """Everything in a user's file."""

    by_name: Mapping[str, Profile] = field(default_factory=dict)
    used: str | None = None
    """Name of the profile of commands that name no other."""

    def get(self, name: str) -> Profile:
        """Return a profile; ProfileError if there is none of that name."""
        found = self.by_name.get(name)
        if found is None:
            known = ", ".join(sorted(self.by_name)[:_KNOWN_SHOWN_MAX]) or "none yet"
            raise ProfileError(f"no profile {name!r}; `pqbroker profile add` makes one. Profiles: {known}")
        return found

    def having(self, profile: Profile, *, is_used: bool) -> "Profiles":
        """Return these profiles with one more, or with one replaced. ProfileError."""
        if not _NAME.fullmatch(profile.name) or profile.name == NO_PROFILE:
            raise ProfileError(
                f"{profile.name!r} is no name of a profile: give 1 to 64 of ASCII letters, digits, '.', '_' and '-', "
                f"a letter or digit first; {NO_PROFILE!r} means no profile"
            )
        by_name = {**self.by_name, profile.name: profile}
        if len(by_name) > PROFILES_MAX:
            raise ProfileError(f"there are {PROFILES_MAX} profiles, the most allowed; `pqbroker profile remove` one")
        return Profiles(by_name, profile.name if is_used else self.used)

    def using(self, name: str) -> "Profiles":
        """Return these profiles with one, or none, for commands that name no other. ProfileError."""
        return replace(self, used=None if name == NO_PROFILE else self.get(name).name)

    def without(self, name: str) -> "Profiles":
        """Return these profiles without one. ProfileError if there is none of that name."""
        gone = self.get(name).name
        left = {each: profile for each, profile in self.by_name.items() if each != gone}
        return Profiles(left, None if self.used == gone else self.used)


@dataclass(frozen=True, slots=True)
class ProfileChoice:
    """The profile of a command, if it has one, and what chose it."""

    profile: Profile | None
    chosen_by: str


def choose_profile(environment: Mapping[str, str], asked: str | None, *, is_addressed: bool) -> ProfileChoice:
    """Return the profile of a command. ProfileError.

    `asked` is the name that an option gives; `is_addressed`: an option names an address, so no profile counts. In this
    order count: options, the variables with an address, the variable with a profile, the profile in use.
    """
    if asked is not None:
        return ProfileChoice(_named(environment, asked), "--profile")
    if is_addressed:
        return ProfileChoice(None, "an address was given")
    for name in (BROKER_VARIABLE, HTTP_VARIABLE):
        if environment.get(name):
            return ProfileChoice(None, name)
    if environment.get(PROFILE_VARIABLE):
        return ProfileChoice(_named(environment, environment[PROFILE_VARIABLE]), PROFILE_VARIABLE)
    profiles = load_profiles(environment)
    return ProfileChoice(None if profiles.used is None else profiles.get(profiles.used), "profile use")


def _named(environment: Mapping[str, str], name: str) -> Profile | None:
    return None if name == NO_PROFILE else load_profiles(environment).get(name)


def profiles_path(environment: Mapping[str, str]) -> Path | None:
    """Return the place of a user's file; None for a user without a home directory."""
    configured = environment.get("XDG_CONFIG_HOME", "")
    if configured.startswith("/"):
        return Path(configured) / "pqbroker" / "profiles.json"
    home = environment.get("HOME")
    return Path(home) / ".config" / "pqbroker" / "profiles.json" if home else None


def load_profiles(environment: Mapping[str, str]) -> Profiles:
    """Return the profiles of a user; none where there is no file. ProfileError."""
    path = profiles_path(environment)
    if path is None:
        return Profiles()
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_mode & _WRITABLE_BY_OTHERS:
                raise ProfileError(f"{path} is writable by others, who could redirect your commands: chmod 600 {path}")
            data = file.read(PROFILES_BYTES_MAX + 1)
    except (FileNotFoundError, NotADirectoryError):
        return Profiles()
    except OSError as error:
        raise ProfileError(f"cannot read the profiles in {path}: {error.strerror}") from None
    try:
        return _parsed(data)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise ProfileError(
            f"{path} is no file of profiles, or one of a newer version; correct it, or remove it and run "
            "`pqbroker profile add` again"
        ) from None


def change_profiles(environment: Mapping[str, str], change: Callable[[Profiles], Profiles]) -> Profiles:
    """Change a user's file as a whole, one process at a time. ProfileError."""
    path = profiles_path(environment)
    if path is None:
        raise ProfileError("no directory for profiles: set HOME, or XDG_CONFIG_HOME to an absolute path")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=_OWN_DIRECTORY)
        with _locked(path.parent):
            changed = change(load_profiles(environment))
            _write(path, changed)
    except OSError as error:
        raise ProfileError(f"cannot write the profiles to {path}: {error.strerror}") from None
    return changed


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _write(path: Path, profiles: Profiles) -> None:
    written = {
        name: {key: value for key, value in _fields(one).items() if value is not None}
        for name, one in sorted(profiles.by_name.items())
    }
    document = {"format": _FORMAT, "used": profiles.used, "profiles": written}
    data = json.dumps(document, indent=2).encode() + b"\n"
    if len(data) > PROFILES_BYTES_MAX:
        raise ProfileError(f"the profiles take {len(data)} bytes; the most allowed is {PROFILES_BYTES_MAX}")
    new = path.with_suffix(".new")
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWNER_ONLY)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(descriptor)
    new.replace(path)


def _fields(one: Profile) -> dict[str, str | None]:
    return {"broker": one.broker, "http": one.http, "command_config": one.command_config, "user": one.user}


def _parsed(data: bytes) -> Profiles:
    """Return the profiles of a file; ValueError and its like for what is none."""
    document = json.loads(data)
    if len(data) > PROFILES_BYTES_MAX or document["format"] != _FORMAT:
        raise ValueError("another format")
    by_name = {str(name): Profile(name, **_texts(one)) for name, one in document["profiles"].items()}
    used = document["used"]
    return Profiles(by_name, used if used is None or used in by_name else None)


def _texts(one: Mapping[str, Any]) -> dict[str, str]:
    if not all(isinstance(value, str) for value in one.values()):
        raise TypeError("a field of a profile is no text")
    return dict(one)
