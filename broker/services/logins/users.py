"""Users: found by name, listed, and changed as Kafka's AlterUserScramCredentials changes them (KIP-554)."""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Protocol

from pqbroker.broker.ground.access import AclOperation, Principal, check_access
from pqbroker.broker.ground.seldom_log import SeldomLog
from pqbroker.broker.services.logins.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SCRAM_MECHANISMS,
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    ScramMechanism,
    ScramVerifier,
    salted_password,
    verifier_of,
)
from pqbroker.broker.services.topics.callers import TopicsNode
from pqbroker.conf.broker import BrokerSettings
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.tablets.scheme import Scheme
from pqbroker.storage.tablets.scheme_objects import STORED_USERS
from pqbroker.storage.tablets.scheme_users import StoredCredential, UserChanges, UserRecord

SALT_BYTES_MAX: Final = 256
"""Bytes of the salt of a credential that a client gives at most."""
_BY_NUMBER: Final[Mapping[int, ScramMechanism]] = {one.number: one for one in SCRAM_MECHANISMS.values()}

seldom = SeldomLog(logging.getLogger(__name__))


class UsersCaller(Protocol):
    """A caller that lists or changes users."""

    @property
    def node(self) -> TopicsNode: ...
    @property
    def principal(self) -> Principal: ...
    @property
    def host(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Deletion:
    """Removal of one credential of a user; with its last one the user is removed."""

    name: str
    mechanism: int


@dataclass(frozen=True, slots=True)
class Upsertion:
    """A new credential of a user, who need not exist."""

    name: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes

    def __repr__(self) -> str:
        return f"Upsertion(name={self.name!r}, mechanism={self.mechanism})"


CredentialChange = Deletion | Upsertion


def credentials_of(password: str, salt: bytes, iterations: int = ITERATIONS_MIN) -> dict[str, StoredCredential]:
    """Make a user's verifiers for every mechanism: milliseconds of computation. The last one is what PLAIN and Basic go
    by: that of SHA-256, which takes less than half the time of the other."""
    found: dict[str, StoredCredential] = {}
    for mechanism in (SCRAM_SHA_512, SCRAM_SHA_256):
        salted = salted_password(mechanism, password, salt, iterations)
        made = verifier_of(mechanism, salted, salt, iterations)
        found[mechanism.name] = StoredCredential(made.salt, made.stored_key, made.server_key, made.iterations)
    return found


def find_user(scheme: Scheme, name: str) -> UserRecord | None:
    """Return a user; None for one that is unknown, or whose row is unreadable: nobody logs in with it then."""
    row = scheme.rows(STORED_USERS).get((name,))
    if row is None:
        return None
    try:
        return UserRecord.read(name, row)
    except ValueError as unreadable:
        seldom.warning("nobody can log in as a user of this broker: %s; set its password again", unreadable)
        return None


def nearest_user(scheme: Scheme, name: str) -> UserRecord | None:
    """Return the user whose name follows a name, or else the first one; None where there is none."""
    key = scheme.next_row(STORED_USERS, (name,))
    return None if key is None else find_user(scheme, str(key[0]))


def verifier_in(user: UserRecord, mechanism: ScramMechanism) -> ScramVerifier | None:
    """Return a user's verifier for a mechanism."""
    stored = user.credentials.get(mechanism.name)
    if stored is None:
        return None
    return ScramVerifier(stored.salt, stored.stored_key, stored.server_key, stored.iterations)


def last_mechanism(user: UserRecord) -> ScramMechanism | None:
    """Return the mechanism whose credential was changed last: PLAIN and Basic go by it."""
    known = [SCRAM_MECHANISMS[name] for name in user.credentials if name in SCRAM_MECHANISMS]
    return known[-1] if known else None


def describe_users(caller: UsersCaller, names: Sequence[str] | None) -> list[tuple[str, UserRecord | KafkaError]]:
    """Return each user that is named, or its refusal; all of them where none is named. KafkaError."""
    check_access(caller, AclOperation.DESCRIBE)
    scheme = caller.node.cell.current.scheme
    if not names:
        found = [find_user(scheme, str(name)) for (name,) in scheme.rows(STORED_USERS)]
        return [(user.name, user) for user in found if user is not None]
    return [(name, _described(scheme, name, count)) for name, count in Counter(names).items()]


def _described(scheme: Scheme, name: str, count: int) -> UserRecord | KafkaError:
    if count > 1:
        text = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        return KafkaError(ErrorCode.DUPLICATE_RESOURCE, text)
    user = find_user(scheme, name)
    if user is None:
        text = f"Attempt to describe a user credential that does not exist: {name}"
        return KafkaError(ErrorCode.RESOURCE_NOT_FOUND, text)
    return user


async def alter_users(caller: UsersCaller, changes: Sequence[CredentialChange]) -> dict[str, KafkaError | None]:
    """Change credentials, and return by user why nothing of it was changed; None: it was, and is durable. One user's
    refusal is no other's. Raises KafkaError, and as `Scheme.change`."""
    check_access(caller, AclOperation.ALTER)
    node = caller.node
    counts = Counter((change.name, change.mechanism) for change in changes)
    results: dict[str, KafkaError | None] = {}
    wanted: dict[str, list[CredentialChange]] = {}
    for change in changes:
        refusal = _refusal(node, change, counts[change.name, change.mechanism])
        results[change.name] = results.get(change.name) or refusal
        wanted.setdefault(change.name, []).append(change)
    wanted = {name: changes for name, changes in wanted.items() if results[name] is None}
    if wanted:
        scheme = node.cell.current.scheme
        plan = partial(_changed, scheme, node, wanted, results)
        try:
            await UserChanges(scheme).change(list(wanted), plan)
        except ValueError as unreadable:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(unreadable)) from None
    return results


async def put_user(
    caller: UsersCaller, name: str, credentials: Mapping[str, StoredCredential] | None, is_super: bool | None
) -> UserRecord:
    """Make a user, or change one: its password, if it is to have new credentials, and whether it is a super user.
    KafkaError; raises as `Scheme.change`."""
    check_access(caller, AclOperation.ALTER)
    node = caller.node
    scheme = node.cell.current.scheme
    _check_name(name, node.settings)
    refusals: dict[str, KafkaError | None] = {}
    made: list[UserRecord] = []

    def plan(known: Mapping[str, UserRecord]) -> list[UserRecord]:
        before = known.get(name)
        if before is None and credentials is None:
            raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, f"there is no user {name}; a new one needs a password")
        if before is None and len(scheme.rows(STORED_USERS)) >= node.settings.users_max:
            raise _too_many_users()
        record = before or UserRecord(name, {}, is_super=False, created_ms=node.clock())
        record = replace(record, credentials=credentials or record.credentials)
        after = [replace(record, is_super=record.is_super if is_super is None else is_super)]
        _keep_super(scheme, known, after, refusals)
        made[:] = after
        return after

    await UserChanges(scheme).change([name], plan)
    refusal = refusals.get(name)
    if refusal is not None:
        raise refusal
    return made[0]


async def remove_user(caller: UsersCaller, name: str) -> None:
    """Remove a user with its tokens. KafkaError; raises as `Scheme.change`."""
    check_access(caller, AclOperation.ALTER)
    scheme = caller.node.cell.current.scheme
    refusals: dict[str, KafkaError | None] = {}

    def plan(known: Mapping[str, UserRecord]) -> list[UserRecord]:
        if name not in known:
            raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, f"there is no user {name}")
        after: list[UserRecord] = []
        _keep_super(scheme, known, after, refusals)
        return after

    await UserChanges(scheme).change([name], plan)
    refusal = refusals.get(name)
    if refusal is not None:
        raise refusal


def _changed(
    scheme: Scheme, node: TopicsNode, wanted: Mapping[str, Sequence[CredentialChange]],
    results: dict[str, KafkaError | None], known: Mapping[str, UserRecord],
) -> list[UserRecord]:
    """Return the users as they are from now on; a refusal leaves one as it is."""
    room = node.settings.users_max - len(scheme.rows(STORED_USERS))
    after: list[UserRecord] = []
    for name, changes in wanted.items():
        record = before = known.get(name)
        room -= before is None
        try:
            for change in changes:
                record = _without(record, change) if isinstance(change, Deletion) else _with(record, change, room)
            if before is None and record is not None:
                record = replace(record, created_ms=node.clock())
        except KafkaError as refusal:
            results[name], record = refusal, before
            room += before is None
        if record is not None:
            after.append(record)
    _keep_super(scheme, known, after, results)
    return after


def _keep_super(
    scheme: Scheme, known: Mapping[str, UserRecord], after: list[UserRecord],
    results: dict[str, KafkaError | None],
) -> None:
    """Leave the super users that would go, if no other one stays: nobody could change users or rules then."""
    stay = {record.name for record in after if record.is_super and record.credentials}
    going = [record for record in known.values() if record.is_super and record.name not in stay]
    if not going or stay:
        return
    others = (find_user(scheme, str(name)) for (name,) in scheme.rows(STORED_USERS) if name not in known)
    if any(user is not None and user.is_super for user in others):
        return
    for record in going:
        results[record.name] = KafkaError(
            ErrorCode.POLICY_VIOLATION, f"{record.name} is the last super user; make another user one first"
        )
        after[:] = [one for one in after if one.name != record.name]
        after.append(record)


def _without(before: UserRecord | None, deletion: Deletion) -> UserRecord | None:
    refusal = _unknown_refusal(before, deletion)
    if refusal is not None:
        raise refusal
    assert before is not None, "one that is unknown is refused"
    mechanism = _BY_NUMBER[deletion.mechanism].name
    left = {name: credential for name, credential in before.credentials.items() if name != mechanism}
    return replace(before, credentials=left)


def _with(before: UserRecord | None, upsertion: Upsertion, room: int) -> UserRecord:
    if before is None and room < 0:
        raise _too_many_users()
    mechanism = _BY_NUMBER[upsertion.mechanism]
    made = verifier_of(mechanism, upsertion.salted_password, upsertion.salt, upsertion.iterations)
    credential = StoredCredential(made.salt, made.stored_key, made.server_key, made.iterations)
    kept = {} if before is None else {k: v for k, v in before.credentials.items() if k != mechanism.name}
    credentials = {**kept, mechanism.name: credential}
    if before is None:
        return UserRecord(upsertion.name, credentials, is_super=False, created_ms=0)
    return replace(before, credentials=credentials)


def _refusal(node: TopicsNode, change: CredentialChange, count: int) -> KafkaError | None:
    """Return why a change is refused whatever the others are; Kafka's texts and its order where it has them."""
    if not change.name:
        return KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if change.mechanism not in _BY_NUMBER:
        return KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(change, Upsertion):
        refusal = _credential_refusal(change, node.settings)
    else:
        refusal = _unknown_refusal(find_user(node.cell.current.scheme, change.name), change)
    if refusal is None and count > 1:
        text = "A user credential cannot be altered twice in the same request"
        return KafkaError(ErrorCode.DUPLICATE_RESOURCE, text)
    return refusal


def _unknown_refusal(before: UserRecord | None, deletion: Deletion) -> KafkaError | None:
    if before is not None and _BY_NUMBER[deletion.mechanism].name in before.credentials:
        return None
    return KafkaError(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")


def _credential_refusal(upsertion: Upsertion, settings: BrokerSettings) -> KafkaError | None:
    refused = ErrorCode.UNACCEPTABLE_CREDENTIAL
    try:
        _check_name(upsertion.name, settings)
    except KafkaError as refusal:
        return refusal
    if upsertion.iterations < ITERATIONS_MIN:
        return KafkaError(refused, "Too few iterations")
    if upsertion.iterations > ITERATIONS_MAX:
        return KafkaError(refused, "Too many iterations")
    if not 0 < len(upsertion.salt) <= SALT_BYTES_MAX:
        text = f"The salt has {len(upsertion.salt)} bytes; give 1 to {SALT_BYTES_MAX}"
        return KafkaError(refused, text)
    if len(upsertion.salted_password) != _BY_NUMBER[upsertion.mechanism].key_bytes:
        text = f"The salted password has {len(upsertion.salted_password)} bytes, which its mechanism never makes"
        return KafkaError(refused, text)
    return None


def _check_name(name: str, settings: BrokerSettings) -> None:
    size, size_max = len(name.encode(errors="replace")), settings.user_name_bytes_max
    if not 0 < size <= size_max or "\0" in name:
        text = f"Username has {size} bytes; give 1 to {size_max} (pqbroker.user.name.bytes.max), and none is NUL"
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, text)


def _too_many_users() -> KafkaError:
    text = "there are as many users as pqbroker.users.max allows; remove some, or raise the setting"
    return KafkaError(ErrorCode.POLICY_VIOLATION, text)
