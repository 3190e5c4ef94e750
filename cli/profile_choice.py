"""The profile of a command, as `--profile NAME`, the environment or `profile use` choose it: one for the whole run."""

import os
from collections.abc import Mapping
from typing import Any

from pqbroker.cli.parsing import Parameter, option
from pqbroker.cli.refusals import CommandError, WrongInput
from pqbroker.security.profiles import BROKER_VARIABLE, Profile, ProfileError, choose_profile, load_profiles


def complete_profiles(broker: str, beginning: str) -> list[str]:
    """Profiles that begin so; none when their file is not readable."""
    try:
        return sorted(name for name in load_profiles(os.environ).by_name if name.startswith(beginning))
    except ProfileError:
        return []


PROFILE = Parameter(
    "profile",
    option(
        "--profile", metavar="NAME", complete=complete_profiles,
        help="Profile of the cluster, as `pqbroker profile add` saved it; none for no profile. Without it: "
        "PQBROKER_PROFILE, or the one of `pqbroker profile use`, unless an address is given.",
    ),
    str, is_list=False, default=None, is_required=False,
)  # fmt: skip
"""Option of every command that connects to a broker."""

_in_force: list[Profile | None] = [None]


def environment_of(given: Mapping[str, list[Any]]) -> Mapping[str, str]:
    """Choose the profile of a command by the options that were typed; return the environment with it. WrongInput."""
    _in_force[0] = None
    asked = given.get(PROFILE.name)
    is_addressed = bool(given.keys() & {"broker", "http"})
    if asked and is_addressed:
        raise WrongInput("--profile does not go with --broker and --http: a profile has the addresses of its cluster")
    try:
        chosen = choose_profile(os.environ, asked[-1] if asked else None, is_addressed=is_addressed)
    except ProfileError as error:
        raise (WrongInput if asked else CommandError)(str(error)) from None
    _in_force[0] = chosen.profile
    return os.environ if chosen.profile is None else chosen.profile.in_place_of(os.environ)


def profile() -> Profile | None:
    """Return the profile of this run."""
    return _in_force[0]


def broker_of_surroundings() -> str | None:
    """Return the Kafka address that the profile names, or else the environment; None: neither does."""
    found = profile()
    return (os.environ.get(BROKER_VARIABLE) or None) if found is None else found.broker


def of_profile() -> str:
    """Return ` of profile NAME`, to stand behind an address; nothing without one."""
    found = profile()
    return "" if found is None else f" of profile {found.name}"


def other_address(option: str, variable: str) -> str:
    """Return the cure for an address that nothing answers at: how to name another one."""
    found = profile()
    if found is None:
        return f"name another with {option} HOST:PORT or in {variable}"
    return f"name another with {option} HOST:PORT; `pqbroker profile show {found.name}` shows what the profile says"
