"""`pqbroker user`: add, list, remove users, set passwords. It works with any Kafka that has SCRAM (KIP-554)."""

import hashlib
import os
from collections.abc import Sequence
from typing import Annotated

from pqbroker.cli.command import Family, declare
from pqbroker.cli.confirmation import confirm
from pqbroker.cli.kafka.cluster import Cluster
from pqbroker.cli.kafka.link import DEFAULT_KAFKA
from pqbroker.cli.options import Broker, Json, Yes
from pqbroker.cli.output import say, show_json, show_table
from pqbroker.cli.parsing import Argument, option
from pqbroker.cli.refusals import CommandError, WrongInput, check
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from pqbroker.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from pqbroker.security.client_login import ITERATIONS_MIN, SCRAM
from pqbroker.security.errors import SecurityError
from pqbroker.security.passwords import new_password_for

app = Family("Add, list and remove users, and set their passwords.")

ITERATIONS_MAX = 16_384
_NUMBERS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
"""Numbers of the mechanisms in Kafka's requests."""
_NAMES = {number: name for name, number in _NUMBERS.items()}
_SALT_BYTES = 20

NamedUser = Annotated[str, Argument(metavar="NAME", help="Name of the user.")]
Iterations = Annotated[
    int,
    option(
        "--iterations", metavar="COUNT", least=ITERATIONS_MIN, most=ITERATIONS_MAX,
        help="Rounds of hashing that one guess of the password costs.",
    ),
]


class _OneAtATime(CommandError):
    """The broker, as Apache Kafka does, takes one credential of a user in a request."""


@declare(app, "add", "pqbroker user add alice")
def add(
    name: NamedUser, iterations: Iterations = ITERATIONS_MIN, broker: Broker = DEFAULT_KAFKA, json: Json = False
) -> None:
    """Add a user, with the password in PQBROKER_NEW_PASSWORD or PQBROKER_NEW_PASSWORD_FILE, or typed."""
    with Cluster(broker) as cluster:
        if _described(cluster, name) is not None:
            raise WrongInput(f"the user {name} exists; `pqbroker user password {name}` sets its password")
        _set_password(cluster, name, iterations)
    _tell(json, name, "added")


@declare(app, "password", "pqbroker user password alice")
def password(
    name: NamedUser, iterations: Iterations = ITERATIONS_MIN, broker: Broker = DEFAULT_KAFKA, json: Json = False
) -> None:
    """Set a user's password, given as for `add`. Connections that are logged in stay so."""
    with Cluster(broker) as cluster:
        _known(cluster, name)
        _set_password(cluster, name, iterations)
    _tell(json, name, "changed")


@declare(app, "list", "pqbroker user list --json")
def list_users(broker: Broker = DEFAULT_KAFKA, json: Json = False) -> None:
    """List users, and the mechanisms and iterations of their passwords."""
    with Cluster(broker) as cluster:
        answer = cluster.ask(DescribeUserScramCredentialsRequest(users=None), DescribeUserScramCredentialsResponse)
    check(answer.error_code, "cannot list users", answer.error_message)
    found = sorted((result.user, result.credential_infos) for result in answer.results)
    if json:
        for name, infos in found:
            show_json({"user": name, "mechanisms": {_mechanism(info): info.iterations for info in infos}})
    elif found:
        columns = ("user", "mechanisms", "iterations")
        show_table(columns, [(name, _joined(infos), max(info.iterations for info in infos)) for name, infos in found])
    else:
        say("no users; `pqbroker user add NAME` makes one")


@declare(app, "remove", "pqbroker user remove alice --yes")
def remove(name: NamedUser, yes: Yes = False, broker: Broker = DEFAULT_KAFKA, json: Json = False) -> None:
    """Remove a user with all its passwords. The last super user stays."""
    with Cluster(broker) as cluster:
        infos = _known(cluster, name)
        confirm(f"remove the user {name}?", yes)
        deletions = [ScramCredentialDeletion(name=name, mechanism=info.mechanism) for info in infos]
        what = f"cannot remove the user {name}"
        try:
            _alter(cluster, AlterUserScramCredentialsRequest(deletions=deletions), what)
        except _OneAtATime:
            for deletion in deletions:
                _alter(cluster, AlterUserScramCredentialsRequest(deletions=[deletion]), what)
    _tell(json, name, "removed")


def _set_password(cluster: Cluster, name: str, iterations: int) -> None:
    try:
        new = new_password_for(name, os.environ)
    except SecurityError as error:
        raise WrongInput(str(error)) from None
    upsertions = []
    for mechanism, digest in SCRAM.items():
        salt = os.urandom(_SALT_BYTES)
        salted = hashlib.pbkdf2_hmac(digest, new.encode(), salt, iterations)
        upsertions.append(
            ScramCredentialUpsertion(
                name=name, mechanism=_NUMBERS[mechanism], iterations=iterations, salt=salt, salted_password=salted
            )
        )
    for upsertion in upsertions:  # Apache Kafka takes one credential of a user in a request
        request = AlterUserScramCredentialsRequest(upsertions=[upsertion])
        _alter(cluster, request, f"cannot set the password of {name}")


def _alter(cluster: Cluster, request: AlterUserScramCredentialsRequest, what: str) -> None:
    answer = cluster.ask(request, AlterUserScramCredentialsResponse)
    for result in answer.results:
        if result.error_code == ErrorCode.DUPLICATE_RESOURCE:
            raise _OneAtATime(f"{what}: {result.error_message}")
        check(result.error_code, what, result.error_message)


def _known(cluster: Cluster, name: str) -> Sequence[CredentialInfo]:
    found = _described(cluster, name)
    if found is None:
        raise CommandError(f"no user {name}; `pqbroker user list` lists them")
    return found


def _described(cluster: Cluster, name: str) -> Sequence[CredentialInfo] | None:
    """Return a user's credentials; None if it is unknown."""
    request = DescribeUserScramCredentialsRequest(users=[UserName(name=name)])
    answer = cluster.ask(request, DescribeUserScramCredentialsResponse)
    check(answer.error_code, f"cannot look for the user {name}", answer.error_message)
    (result,) = answer.results
    if result.error_code == ErrorCode.RESOURCE_NOT_FOUND:
        return None
    check(result.error_code, f"cannot look for the user {name}", result.error_message)
    return result.credential_infos


def _tell(json: bool, name: str, done: str) -> None:
    if json:
        show_json({"user": name, done: True})
    else:
        say(f"{done} the user {name}" if done != "changed" else f"changed the password of {name}")


def _mechanism(info: CredentialInfo) -> str:
    return _NAMES.get(info.mechanism, str(info.mechanism))


def _joined(infos: Sequence[CredentialInfo]) -> str:
    return ", ".join(_mechanism(info) for info in infos)
