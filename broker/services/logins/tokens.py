"""Tokens: made for a user, stored as digests, ended by time, by hand, or with their user.

A token is `pqb_ID_SECRET`. The id finds its row, the digest of the secret proves it.
"""

import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from pqbroker.broker.ground.access import ANONYMOUS, AclOperation, check_access
from pqbroker.broker.services.logins.users import UsersCaller, find_user
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.tablets.scheme import Scheme
from pqbroker.storage.tablets.scheme_objects import STORED_TOKENS
from pqbroker.storage.tablets.scheme_users import TokenChanges, TokenRecord

NOTE_BYTES_MAX: Final = 256
"""Bytes of the note of a token at most."""
TOKEN_PREFIX: Final = "pqb_"
"""Beginning of each token of this broker's own."""
_TOKEN: Final = re.compile(TOKEN_PREFIX + r"([0-9a-f]{16})_([A-Za-z0-9_-]{32,64})")


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token that is wanted. `token_id` has 16 hex digits; the secret is in nobody's hands but the caller's."""

    token_id: str
    secret: str
    user: str
    note: str
    expires_ms: int | None

    def __repr__(self) -> str:
        return f"NewToken({self.token_id})"

    @property
    def text(self) -> str:
        return f"{TOKEN_PREFIX}{self.token_id}_{self.secret}"


async def create_token(caller: UsersCaller, wanted: NewToken) -> TokenRecord:
    """Store a token, durable when this returns. For another user the caller must be allowed to alter the cluster.
    KafkaError; raises as `Scheme.change`."""
    _check_owner(caller, wanted.user, AclOperation.ALTER)
    node = caller.node
    scheme = node.cell.current.scheme
    if find_user(scheme, wanted.user) is None:
        cause = f"there is no user {wanted.user}" if wanted.user else "the caller has not logged in"
        raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, f"{cause}; a token is for a user of the broker")
    if len(wanted.note.encode()) > NOTE_BYTES_MAX:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"the note is longer than {NOTE_BYTES_MAX} bytes")
    now_ms = node.clock()
    if wanted.expires_ms is not None and wanted.expires_ms <= now_ms:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the token would have expired already; give a later time")
    digest = _digest(wanted.secret)
    record = TokenRecord(wanted.token_id, digest, wanted.user, wanted.note, now_ms, wanted.expires_ms)
    if not await TokenChanges(scheme).add(record, node.settings.tokens_max, now_ms):
        text = "there are as many tokens as pqbroker.tokens.max allows; revoke some, or raise the setting"
        raise KafkaError(ErrorCode.POLICY_VIOLATION, text)
    return record


def list_tokens(caller: UsersCaller) -> list[TokenRecord]:
    """Return the tokens of all users if the caller may describe the cluster, else the caller's own."""
    scheme = caller.node.cell.current.scheme
    found = list(known_tokens(scheme).values())
    try:
        check_access(caller, AclOperation.DESCRIBE)
    except KafkaError:
        return [record for record in found if record.user == caller.principal.name]
    return found


async def revoke_token(caller: UsersCaller, token_id: str) -> None:
    """End a token, durable when this returns. KafkaError; raises as `Scheme.change`."""
    scheme = caller.node.cell.current.scheme
    record = known_tokens(scheme).get(token_id)
    if record is None:
        check_access(caller, AclOperation.ALTER)
        raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, f"there is no token {token_id}")
    _check_owner(caller, record.user, AclOperation.ALTER)
    await TokenChanges(scheme).remove(token_id)


def user_of(scheme: Scheme, token: str, now_ms: int) -> str | None:
    """Return the user that a token stands for; None if it is unknown, its time is over, or its user is gone."""
    found = _TOKEN.fullmatch(token)
    row = None if found is None else scheme.rows(STORED_TOKENS).get((found[1],))
    if found is None or row is None:
        return None
    try:
        record = TokenRecord.read(found[1], row)
    except ValueError:
        return None
    is_right = hmac.compare_digest(record.digest, _digest(found[2]))
    is_over = record.expires_ms is not None and record.expires_ms <= now_ms
    return record.user if is_right and not is_over and find_user(scheme, record.user) is not None else None


def known_tokens(scheme: Scheme) -> Mapping[str, TokenRecord]:
    """Return every token that is readable and whose user exists, by id."""
    found: dict[str, TokenRecord] = {}
    rows: Any = scheme.rows(STORED_TOKENS)
    for (token_id,), row in rows.items():
        try:
            record = TokenRecord.read(token_id, row)
        except ValueError:
            continue
        found[token_id] = record
    return found


def _check_owner(caller: UsersCaller, user: str, operation: AclOperation) -> None:
    if caller.principal == ANONYMOUS or caller.principal.name != user:
        check_access(caller, operation)


def _digest(secret: str) -> bytes:
    return sha256(secret.encode()).digest()
