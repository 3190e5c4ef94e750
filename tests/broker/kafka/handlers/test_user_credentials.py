"""Users and their credentials: set, shown, removed, refused, kept over a restart."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import pytest

from pqbroker.broker.ground.listeners import Address
from pqbroker.broker.node.server import Server
from pqbroker.conf.broker import BrokerSettings
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from pqbroker.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from pqbroker.storage.memory import MemoryEngine
from pqbroker.storage.tablets.scheme_users import UserChanges, UserRecord
from tests.broker.conftest import ENGINE_BYTES, Node
from tests.broker.wire import Client
from tests.support.sasl import credential

Start = Callable[..., Awaitable[Node]]
SHA_256, SHA_512 = 1, 2


async def alter(
    client: Client, *upsertions: ScramCredentialUpsertion, deletions: Sequence[tuple[str, int]] = ()
) -> dict[str, tuple[ErrorCode, str | None]]:
    """Change users; return code and message by user."""
    gone = [ScramCredentialDeletion(name=name, mechanism=mechanism) for name, mechanism in deletions]
    answer = await client.ask(AlterUserScramCredentialsRequest(deletions=gone, upsertions=list(upsertions)))
    return {result.user: (result.error_code, result.error_message) for result in answer.results}


async def describe(client: Client, *names: str) -> dict[str, list[tuple[int, int]] | ErrorCode]:
    """Mechanism and iterations of each credential by user, or the error."""
    users = [UserName(name=name) for name in names] if names else None
    answer = await client.ask(DescribeUserScramCredentialsRequest(users=users))
    return {
        result.user: result.error_code or [(info.mechanism, info.iterations) for info in result.credential_infos]
        for result in answer.results
    }


async def test_credentials_are_set_shown_and_removed(client: Client) -> None:
    assert await describe(client) == {}
    found = await alter(
        client, credential("alice", "a", "SCRAM-SHA-512", 8192), credential("alice", "a"), credential("bob", "b")
    )
    assert found == {"alice": (ErrorCode.NONE, None), "bob": (ErrorCode.NONE, None)}
    assert await describe(client) == {"alice": [(SHA_256, 4096), (SHA_512, 8192)], "bob": [(SHA_256, 4096)]}
    await alter(client, deletions=[("alice", SHA_256), ("bob", SHA_256)])
    assert await describe(client) == {"alice": [(SHA_512, 8192)]}
    assert await describe(client, "alice", "bob", "carol", "carol") == {
        "alice": [(SHA_512, 8192)], "bob": ErrorCode.RESOURCE_NOT_FOUND, "carol": ErrorCode.DUPLICATE_RESOURCE,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "code", "message"),
    [
        (credential("", "x"), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
        (credential("eve", "x", iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"),
        (credential("eve", "x", iterations=16385), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations"),
        (replace(credential("eve", "x"), mechanism=3), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        (replace(credential("eve", "x"), salt=b""), ErrorCode.UNACCEPTABLE_CREDENTIAL, "The salt has 0 bytes"),
        (replace(credential("eve", "x"), salt=bytes(257)), ErrorCode.UNACCEPTABLE_CREDENTIAL, "The salt has 257 bytes"),
        (
            replace(credential("eve", "x"), salted_password=b"x"), ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "The salted password has 1 bytes",
        ),
        (credential("n" * 257, "x"), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username has 257 bytes"),
    ],
)  # fmt: skip
async def test_one_users_refusal_is_no_others(
    client: Client, wrong: ScramCredentialUpsertion, code: ErrorCode, message: str
) -> None:
    found = await alter(client, wrong, credential("bob", "b"))
    assert found["bob"] == (ErrorCode.NONE, None)
    assert found[wrong.name][0] == code
    assert str(found[wrong.name][1]).startswith(message)
    assert await describe(client) == {"bob": [(SHA_256, 4096)]}


async def test_a_credential_that_is_unknown_or_named_twice_is_refused(client: Client) -> None:
    found = await alter(client, credential("a", "x"), credential("a", "y"), deletions=[("b", SHA_256)])
    assert found["a"][0] == ErrorCode.DUPLICATE_RESOURCE
    assert found["b"] == (
        ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
    )  # fmt: skip
    assert await describe(client) == {}


async def test_users_are_as_many_as_pqbroker_users_max(start: Start) -> None:
    client = await (await start(users_max=2)).connect()
    found = await alter(client, *(credential(name, "x") for name in "abc"))
    assert [found[name][0] for name in "abc"] == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.POLICY_VIOLATION]
    found = await alter(client, credential("b", "another"), deletions=[("a", SHA_256)])
    assert [found[name][0] for name in "ab"] == [ErrorCode.NONE, ErrorCode.NONE]
    assert (await alter(client, credential("c", "x")))["c"][0] == ErrorCode.NONE


async def test_the_last_super_user_stays(node: Node, client: Client) -> None:
    scheme = node.server.node.cell.current.scheme
    await alter(client, *(credential(name, "x") for name in ("root", "admin", "alice")))

    def promote(known: object) -> list[UserRecord]:
        assert isinstance(known, dict)
        return [replace(record, is_super=True) for record in known.values()]

    await UserChanges(scheme).change(["root", "admin"], promote)
    found = await alter(client, deletions=[("root", SHA_256), ("admin", SHA_256), ("alice", SHA_256)])
    assert found["alice"] == (ErrorCode.NONE, None)
    assert {found[name][0] for name in ("root", "admin")} == {ErrorCode.POLICY_VIOLATION}
    assert (await alter(client, deletions=[("root", SHA_256)]))["root"] == (ErrorCode.NONE, None)
    code, message = (await alter(client, deletions=[("admin", SHA_256)]))["admin"]
    assert (code, message) == (
        ErrorCode.POLICY_VIOLATION, "admin is the last super user; make another user one first"
    )  # fmt: skip
    assert set(await describe(client)) == {"admin"}


async def test_users_are_kept_over_a_restart_without_their_passwords() -> None:
    engine = MemoryEngine(ENGINE_BYTES)
    for _ in range(2):
        server = Server(BrokerSettings(), engine, Address("127.0.0.1", 0))
        await server.start()
        client = await Client.connect("127.0.0.1", server.kafka_address.port)
        if not await describe(client):
            await alter(client, credential("alice", "Very-Secret-1"))
        assert await describe(client) == {"alice": [(SHA_256, 4096)]}
        await client.close()
        await server.stop()
