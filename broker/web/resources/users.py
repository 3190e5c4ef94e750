"""Users and their tokens. No password and no verifier is ever shown; a token is, once."""

import secrets
from typing import Any, Final

from pqbroker.broker.ground.access import ANONYMOUS, AclOperation
from pqbroker.broker.services.logins.password_checks import TooManyChecks
from pqbroker.broker.services.logins.scram import ITERATIONS_MAX, ITERATIONS_MIN
from pqbroker.broker.services.logins.tokens import NewToken, create_token, list_tokens, revoke_token
from pqbroker.broker.services.logins.users import describe_users, put_user, remove_user
from pqbroker.broker.web.resources.contents import TIMESTAMP
from pqbroker.broker.web.routing.problems import Problem, bad_request
from pqbroker.broker.web.routing.routes import AFTER_NAME, LIMIT, Call, Route
from pqbroker.broker.web.routing.schemas import COUNT, TEXT, array_of, nullable, object_of
from pqbroker.security.errors import SecurityError
from pqbroker.security.passwords import check_password
from pqbroker.storage.tablets.scheme_users import TokenRecord, UserRecord

_ID_BYTES: Final = 8
_SECRET_BYTES: Final = 32
_FLAG = {"type": "boolean"}
_USER = object_of(
    {"name": TEXT, "super": _FLAG, "created": TIMESTAMP,
     "mechanisms": array_of(object_of({"name": TEXT, "iterations": COUNT}))}
)  # fmt: skip
_TOKEN = object_of({"id": TEXT, "user": TEXT, "note": TEXT, "created": TIMESTAMP, "expires": nullable(TIMESTAMP)})
_NEW_TOKEN = object_of(
    {"id": TEXT, "user": TEXT, "note": TEXT, "created": TIMESTAMP, "expires": nullable(TIMESTAMP), "token": TEXT}
)
_USER_EXAMPLE = {
    "name": "alice", "super": False, "created": 1795683600000,
    "mechanisms": [{"name": "SCRAM-SHA-256", "iterations": 4096}, {"name": "SCRAM-SHA-512", "iterations": 4096}],
}  # fmt: skip
_TOKEN_EXAMPLE = {
    "id": "00f1e2d3c4b5a697", "user": "alice", "note": "dashboard", "created": 1795683600000,
    "expires": None,
}  # fmt: skip


async def list_users(call: Call) -> Any:
    found = [user for _, user in describe_users(call, None) if isinstance(user, UserRecord)]
    page, has_more = call.page([user for user in found if user.name > call.query.get("after", "")])
    return {"users": [_show_user(user) for user in page], "next": page[-1].name if has_more else None}


async def put(call: Call) -> Any:
    body, credentials = call.body, None
    if "password" in body:
        try:
            password = check_password(body["password"])
        except SecurityError as error:
            raise bad_request(str(error)) from None
        iterations = body.get("iterations", ITERATIONS_MIN)
        if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            raise bad_request(f"iterations is {iterations}; give {ITERATIONS_MIN} to {ITERATIONS_MAX}")
        try:
            credentials = await call.node.logins.make_credentials(password, iterations, call.holder)
        except TooManyChecks:
            cure = "Try again in a moment, or raise pqbroker.login.checks.max."
            raise Problem(503, "TOO_MANY_LOGINS", "too many passwords wait for their check", cure) from None
    return _show_user(await put_user(call, call.path["name"], credentials, body.get("super")))


async def remove(call: Call) -> None:
    await remove_user(call, call.path["name"])


async def list_all_tokens(call: Call) -> Any:
    found = [record for record in list_tokens(call) if record.token_id > call.query.get("after", "")]
    page, has_more = call.page(found)
    return {"tokens": [_show_token(record) for record in page], "next": page[-1].token_id if has_more else None}


async def create(call: Call) -> Any:
    body = call.body
    own = "" if call.principal == ANONYMOUS else call.principal.name
    lifetime_ms = body.get("lifetime_ms")
    expires_ms = None if lifetime_ms is None else call.node.clock() + lifetime_ms
    wanted = NewToken(
        secrets.token_hex(_ID_BYTES), secrets.token_urlsafe(_SECRET_BYTES), body.get("user", own),
        body.get("note", ""), expires_ms,
    )  # fmt: skip
    return {**_show_token(await create_token(call, wanted)), "token": wanted.text}


async def revoke(call: Call) -> None:
    await revoke_token(call, call.path["name"])


def _show_user(user: UserRecord) -> dict[str, Any]:
    return {
        "name": user.name, "super": user.is_super, "created": user.created_ms,
        "mechanisms": [
            {"name": name, "iterations": credential.iterations}
            for name, credential in sorted(user.credentials.items())
        ],
    }  # fmt: skip


def _show_token(record: TokenRecord) -> dict[str, Any]:
    return {
        "id": record.token_id, "user": record.user, "note": record.note, "created": record.created_ms,
        "expires": record.expires_ms,
    }  # fmt: skip


ROUTES = (
    Route(
        "GET", "/v1/users", "List users, and the mechanisms of their passwords", list_users,
        object_of({"users": array_of(_USER), "next": nullable(TEXT)}), (AFTER_NAME, LIMIT),
        cluster=AclOperation.DESCRIBE, example={"users": [_USER_EXAMPLE], "next": None},
    ),
    Route(
        "PUT", "/v1/users/{name}", "Make a user, or change its password or whether it is a super user", put, _USER,
        body=object_of({}, {"password": TEXT, "super": _FLAG, "iterations": COUNT}), cluster=AclOperation.ALTER,
        example=_USER_EXAMPLE, body_example={"password": "a long one", "super": False},
    ),
    Route(
        "DELETE", "/v1/users/{name}", "Remove a user with its tokens; the last super user stays", remove, None,
        status=204, cluster=AclOperation.ALTER,
    ),
    Route(
        "GET", "/v1/tokens", "List tokens: of all users, or the caller's own", list_all_tokens,
        object_of({"tokens": array_of(_TOKEN), "next": nullable(TEXT)}), (AFTER_NAME, LIMIT),
        example={"tokens": [_TOKEN_EXAMPLE], "next": None},
    ),
    Route(
        "POST", "/v1/tokens", "Make a token for a user, the caller unless named; it is shown once", create, _NEW_TOKEN,
        body=object_of({}, {"user": TEXT, "note": TEXT, "lifetime_ms": COUNT}), status=201,
        example={**_TOKEN_EXAMPLE, "token": "pqb_00f1e2d3c4b5a697_…"}, body_example={"note": "dashboard"},
    ),
    Route("DELETE", "/v1/tokens/{name}", "Revoke a token, by its id", revoke, None, status=204),
)  # fmt: skip
