"""`pqbroker profile`: clusters by name, so that a command needs no addresses."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from pqbroker.cli.command import Family, declare
from pqbroker.cli.http_address import parse_http
from pqbroker.cli.kafka.link import parse_brokers
from pqbroker.cli.options import Json
from pqbroker.cli.output import say, show_json, show_table
from pqbroker.cli.parsing import Argument, option
from pqbroker.cli.profile_choice import complete_profiles
from pqbroker.cli.refusals import CommandError, WrongInput
from pqbroker.security.client_properties import load_client_security
from pqbroker.security.errors import SecurityError
from pqbroker.security.profiles import (
    NO_PROFILE,
    Profile,
    ProfileError,
    Profiles,
    change_profiles,
    choose_profile,
    load_profiles,
)

app = Family("Save clusters by name: their addresses, and the security of connections to them.")

ProfileName = Annotated[str, Argument(metavar="NAME", complete=complete_profiles, help="Name of the profile.")]
ProfileBroker = Annotated[
    str, option("--broker", "-b", metavar="HOST:PORT", help="Kafka address; several with commas.")
]
ProfileHttp = Annotated[
    str | None,
    option("--http", metavar="[https://]HOST:PORT", help="HTTP address; without it: the one that the broker names."),
]
ProfileConfig = Annotated[
    Path | None,
    option(
        "--command-config", metavar="FILE",
        help="File with the security of connections, in the form of Kafka's client.properties. The profile has its "
        "path, not what is in it.",
    ),
]  # fmt: skip
ProfileUser = Annotated[
    str | None,
    option(
        "--user", metavar="NAME",
        help="User to log in as, with the password in PQBROKER_PASSWORD or PQBROKER_PASSWORD_FILE, or typed.",
    ),
]  # fmt: skip


@declare(app, "add", "pqbroker profile add prod --broker broker.example:9093 --command-config client.properties")
def add(
    name: ProfileName,
    address: ProfileBroker,
    web: ProfileHttp = None,
    file: ProfileConfig = None,
    login: ProfileUser = None,
    use: Annotated[bool, option("--use", help="Use it for commands that name no other.")] = False,
    replace: Annotated[bool, option("--replace", help="Replace the profile of this name, if it exists.")] = False,
    json: Json = False,
) -> None:
    """Save a cluster under a name. Nothing connects to it.

    Passwords are never in a profile: they are in the file of --command-config, in the environment, or typed.
    """
    parse_brokers(address)
    if web is not None:
        parse_http("--http", web)
    if file is not None:
        _check_config(file)
    made = Profile(name, address, web, None if file is None else str(file.absolute()), login)

    def change(profiles: Profiles) -> Profiles:
        if name in profiles.by_name and not replace:
            raise ProfileError(f"profile {name} exists already; --replace replaces it")
        return profiles.having(made, is_used=use)

    changed = _changed(change)
    if json:
        show_json(_shown(made, changed.used))
    else:
        hint = "" if changed.used == name else f"; `pqbroker profile use {name}` uses it from now on"
        say(f"saved profile {name}{hint}")


@declare(app, "use", "pqbroker profile use prod")
def use_profile(name: ProfileName, json: Json = False) -> None:
    """Use a profile for every command that names no address and no other profile; none for no profile.

    In this order count: the options --profile, --broker and --http; PQBROKER_BROKER and PQBROKER_HTTP;
    PQBROKER_PROFILE; the profile in use; 127.0.0.1. A profile counts as a whole: one without a user or a file of
    --command-config does not take those of the environment.
    """
    _changed(lambda profiles: profiles.using(name))
    if json:
        show_json({"profile": None if name == NO_PROFILE else name, "in_use": name != NO_PROFILE})
    else:
        say("no profile is in use" if name == NO_PROFILE else f"profile {name} is in use")


@declare(app, "list", "pqbroker profile list --json")
def list_profiles(json: Json = False) -> None:
    """List the profiles."""
    profiles = _loaded()
    found = [profiles.by_name[name] for name in sorted(profiles.by_name)]
    if json:
        for each in found:
            show_json(_shown(each, profiles.used))
    elif found:
        columns = ("profile", "broker", "http", "command config", "user", "in use")
        shown = [tuple(_shown(each, profiles.used).values()) for each in found]
        show_table(columns, [(*fields, "yes" if is_used else "no") for *fields, is_used in shown])
    else:
        say("no profiles; `pqbroker profile add` makes one")


@declare(app, "show", "pqbroker profile show")
def show(
    name: Annotated[
        str | None,
        Argument(
            metavar="NAME", complete=complete_profiles, help="Name of the profile; without it: the one of commands now."
        ),
    ] = None,
    json: Json = False,
) -> None:  # fmt: skip
    """Show a profile; without a name the one that commands use now, and what chose it."""
    profiles = _loaded()
    try:
        chosen = choose_profile(os.environ, name, is_addressed=False)
    except ProfileError as error:
        raise CommandError(str(error)) from None
    found, source = chosen.profile, None if name else chosen.chosen_by
    if found is None:
        if json:
            show_json({"profile": None, "chosen_by": source})
        elif source is not None and source.startswith("PQBROKER_"):
            say(f"commands use no profile, because {source} is set")
        else:
            say("commands use no profile; `pqbroker profile use NAME` chooses one")
        return
    shown = _shown(found, profiles.used)
    if json:
        show_json(shown | {"chosen_by": source})
        return
    lines = [(key.replace("_", " "), value) for key, value in shown.items() if isinstance(value, str)]
    show_table(("field", "value"), lines + ([("chosen by", source)] if source else []))


@declare(app, "remove", "pqbroker profile remove prod")
def remove(name: ProfileName, json: Json = False) -> None:
    """Remove a profile; what it names stays as it is."""
    _changed(lambda profiles: profiles.without(name))
    if json:
        show_json({"profile": name, "removed": True})
    else:
        say(f"removed profile {name}")


def _shown(one: Profile, used: str | None) -> dict[str, str | bool | None]:
    return {
        "profile": one.name, "broker": one.broker, "http": one.http, "command_config": one.command_config,
        "user": one.user, "in_use": one.name == used,
    }  # fmt: skip


def _check_config(path: Path) -> None:
    """WrongInput for a file that no command could use."""
    try:
        load_client_security(path)
    except SecurityError as error:
        raise WrongInput(f"--command-config: {error}") from None


def _loaded() -> Profiles:
    try:
        return load_profiles(os.environ)
    except ProfileError as error:
        raise CommandError(str(error)) from None


def _changed(change: Callable[[Profiles], Profiles]) -> Profiles:
    try:
        return change_profiles(os.environ, change)
    except ProfileError as error:
        raise CommandError(str(error)) from None
