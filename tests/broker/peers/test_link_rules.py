"""Rules of the peer link: the greeting, its enemies, ids and silence. Two ends talk by bytes; time is a number."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pqbroker.broker.peers.link_rules import (
    GREETING_BYTES_MAX,
    LINK_STATES,
    NONCE_BYTES,
    REQUESTS_MAX,
    LinkBusy,
    LinkRules,
    LinkState,
    LinkTerms,
)
from pqbroker.broker.peers.peer_frames import (
    PEER_FRAME_HEAD_BYTES,
    FrameKind,
    LinkBroken,
    PeerFrame,
    PeerFrameReader,
    encode_peer_frame,
)
from tests.support.depth import examples

TERMS = LinkTerms(b"known to both", node=2, frame_bytes_max=1000, greeting_s=4.0)


def _ends(door: LinkTerms = TERMS, comer: LinkTerms = TERMS) -> tuple[LinkRules, LinkRules]:
    return (
        LinkRules(replace(door, node=0), bytes(NONCE_BYTES), 0.0, is_door=True),
        LinkRules(comer, b"\1" * NONCE_BYTES, 0.0, is_door=False),
    )


def _pass(frames: list[PeerFrame], to: LinkRules, now: float = 0.0) -> list[PeerFrame]:
    replies, taken = to.received(b"".join(map(encode_peer_frame, frames)), now)
    assert not taken
    return replies


def _open() -> tuple[LinkRules, LinkRules]:
    door, comer = _ends()
    assert _pass(_pass(_pass(_pass([comer.hello()], door), comer), door), comer) == []
    assert door.is_open
    assert comer.is_open
    return door, comer


def test_two_ends_that_know_the_secret_open_the_link_and_know_the_node() -> None:
    door, _ = _open()
    assert door.node == 2


def test_a_comer_without_the_secret_does_not_get_in() -> None:
    door, comer = _ends(comer=replace(TERMS, secret=b"guessed"))
    challenge = _pass([comer.hello()], door)
    with pytest.raises(LinkBroken, match="does not know the secret"):
        _pass(challenge, comer)
    with pytest.raises(LinkBroken, match="does not know the secret"):
        _pass([PeerFrame(FrameKind.PROOF, 0, bytes(32))], door)
    assert not door.is_open


def test_a_proof_that_was_overheard_proves_nothing_on_another_link() -> None:
    door, comer = _ends()
    hello = comer.hello()
    proof = _pass(_pass([hello], door), comer)
    other = LinkRules(replace(TERMS, node=0), b"\2" * NONCE_BYTES, 0.0, is_door=True)
    _pass([hello], other)
    with pytest.raises(LinkBroken, match="does not know the secret"):
        _pass(proof, other)


def test_a_door_cannot_be_played_by_who_sends_a_proof_back() -> None:
    """The proofs of both ends differ, so that a mirror of what the comer says is no door."""
    _, comer = _ends()
    _pass([PeerFrame(FrameKind.CHALLENGE, 0, _challenge_of_door())], comer)
    mirrored = LinkRules(TERMS, b"\1" * NONCE_BYTES, 0.0, is_door=False)
    with pytest.raises(LinkBroken):
        _pass([PeerFrame(FrameKind.CHALLENGE, 0, mirrored.hello().payload)], mirrored)


def _challenge_of_door() -> bytes:
    door, comer = _ends()
    (challenge,) = _pass([comer.hello()], door)
    return challenge.payload


def test_another_node_number_than_the_one_that_was_proved_is_refused() -> None:
    door, comer = _ends()
    hello = comer.hello()
    lied = hello._replace(payload=hello.payload[:10] + b"\0\3" + hello.payload[12:])
    with pytest.raises(LinkBroken, match="does not know the secret"):
        _pass(_pass([lied], door), comer)


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (lambda payload: b"GET / HT" + payload[8:], "no peer of this broker"),
        (lambda payload: payload[:8] + b"\0\2" + payload[10:], "speaks version 2 of the peer link, this one version 1"),
        (lambda payload: payload[:-1], "a HELLO has 43 bytes; 44 are right"),
        (lambda payload: b"", "a HELLO has 0 bytes"),
    ],
)
def test_a_hello_that_lies_is_refused(change: Callable[[bytes], bytes], cause: str) -> None:
    door, comer = _ends()
    hello = comer.hello()
    with pytest.raises(LinkBroken, match=cause):
        _pass([hello._replace(payload=change(hello.payload))], door)


def test_a_challenge_of_another_version_or_length_is_refused() -> None:
    for payload, cause in ((b"\0\2" + _challenge_of_door()[2:], "version 2"), (b"", "a CHALLENGE has 0 bytes")):
        _, comer = _ends()
        with pytest.raises(LinkBroken, match=cause):
            _pass([PeerFrame(FrameKind.CHALLENGE, 0, payload)], comer)


@pytest.mark.parametrize("kind", FrameKind)
@pytest.mark.parametrize("state", LinkState)
def test_only_the_steps_of_the_table_are_taken(state: LinkState, kind: FrameKind) -> None:
    if (state, kind) in LINK_STATES:
        return
    end, other = _open() if state is LinkState.OPEN else _ends()
    if state in (LinkState.GREETING, LinkState.PROVING):
        end, other = other, end
    if state is LinkState.CHALLENGED:
        _pass([other.hello()], end)
    elif state is LinkState.PROVING:
        _pass(_pass([end.hello()], other), end)
    assert end.state is state
    with pytest.raises(LinkBroken, match=f"{kind.name} came while the link was {state.name.lower()}"):
        end.received(encode_peer_frame(PeerFrame(kind, 1, b"x")), 0.0)


def test_nobody_makes_the_door_keep_much_before_the_link_is_open() -> None:
    door, _ = _ends()
    with pytest.raises(LinkBroken, match=f"to {GREETING_BYTES_MAX} are allowed"):
        door.received((GREETING_BYTES_MAX + 1).to_bytes(4), 0.0)


def test_an_open_link_takes_frames_up_to_its_limit() -> None:
    door, _ = _open()
    largest = PeerFrame(FrameKind.NOTE, 0, bytes(1000 - PEER_FRAME_HEAD_BYTES + 4))
    assert door.received(encode_peer_frame(largest), 0.0) == ([], [largest])
    with pytest.raises(LinkBroken, match="a frame says that it has 1001 bytes"):
        door.received((1001).to_bytes(4), 0.0)


@pytest.mark.parametrize("length", [0, 8, 1 << 31, (1 << 32) - 1])
def test_a_length_that_lies_breaks_the_link_before_anything_is_kept(length: int) -> None:
    door, _ = _open()
    with pytest.raises(LinkBroken, match=f"says that it has {length} bytes"):
        door.received(length.to_bytes(4), 0.0)


def test_an_unknown_kind_breaks_the_link() -> None:
    door, _ = _open()
    with pytest.raises(LinkBroken, match="kind 77"):
        door.received((9).to_bytes(4) + b"\x4d" + bytes(8), 0.0)


def test_a_request_that_is_sent_again_breaks_the_link() -> None:
    door, comer = _open()
    request = encode_peer_frame(PeerFrame(FrameKind.REQUEST, comer.ask(), b"once"))
    door.received(request, 0.0)
    with pytest.raises(LinkBroken, match="request 1 came after request 1"):
        door.received(request, 0.0)


def test_an_answer_that_nobody_waits_for_breaks_the_link() -> None:
    door, comer = _open()
    answer = encode_peer_frame(PeerFrame(FrameKind.ANSWER, comer.ask(), b""))
    comer.received(answer, 0.0)
    for end in (comer, door):
        with pytest.raises(LinkBroken, match="which waits for none"):
            end.received(answer, 0.0)


def test_requests_that_wait_for_answers_have_a_limit() -> None:
    _, comer = _open()
    ids = [comer.ask() for _ in range(REQUESTS_MAX)]
    with pytest.raises(LinkBusy, match=f"{REQUESTS_MAX} requests of this node wait"):
        comer.ask()
    comer.received(encode_peer_frame(PeerFrame(FrameKind.REFUSAL, ids[7], b"no")), 0.0)
    assert comer.ask() == REQUESTS_MAX + 1


def test_a_silence_breaks_the_link_and_a_heartbeat_ends_it() -> None:
    door, _ = _open()
    _look(door, 0.0, 3.0)
    assert door.received(encode_peer_frame(PeerFrame(FrameKind.HEARTBEAT, 0, b"")), 3.0) == ([], [])
    _look(door, 3.0, 6.0)
    with pytest.raises(LinkBroken, match=r"nothing came for 3\.1 s; 3 s are allowed"):
        door.check_silence(6.1)


def test_another_silence_may_be_allowed() -> None:
    door, _ = _open()
    door.silence_s = 60.0
    _look(door, 0.0, 59.0)
    door.silence_s = 1.0
    with pytest.raises(LinkBroken, match=r"nothing came for 59\.0 s; 1 s are allowed"):
        door.check_silence(59.0)


def test_a_frame_that_never_ends_is_silence() -> None:
    door, _ = _open()
    for second in range(4):
        _look(door, max(0.0, second - 1), float(second))
        door.received(b"\0\0\2\0" if not second else b"x", float(second))
    with pytest.raises(LinkBroken, match=r"nothing came for 3\.5 s"):
        door.check_silence(3.5)


def test_time_in_which_this_end_was_stopped_is_no_silence_of_the_other() -> None:
    door, _ = _open()
    _look(door, 0.0, 2.0)
    door.check_silence(100.0)
    _look(door, 100.0, 101.0)
    with pytest.raises(LinkBroken, match=r"nothing came for 3\.1 s; 3 s are allowed"):
        door.check_silence(101.1)


def test_a_look_that_comes_a_little_late_counts() -> None:
    door, _ = _open()
    for late in (1.4, 2.8):
        door.check_silence(late)
    with pytest.raises(LinkBroken, match=r"nothing came for 4\.2 s"):
        door.check_silence(4.2)


def _look(rules: LinkRules, since: float, until: float) -> None:
    """Look for a silence as often as an end does."""
    while since < until:
        rules.check_silence(since)
        since += 0.5
    rules.check_silence(until)


def test_a_greeting_that_does_not_end_breaks_the_link() -> None:
    door, comer = _ends()
    _pass([comer.hello()], door, now=3.9)
    _look(door, 0.0, 4.0)
    with pytest.raises(LinkBroken, match=r"the greeting did not end for 4\.1 s; 4 s are allowed"):
        door.check_silence(4.1)


_FRAMES = st.lists(
    st.builds(
        PeerFrame, st.sampled_from(FrameKind), st.integers(0, (1 << 64) - 1), st.binary(max_size=100)
    ), max_size=6,
)  # fmt: skip


@settings(max_examples=examples(200))
@given(_FRAMES, st.data())
def test_a_reader_finds_the_frames_however_the_bytes_are_cut(frames: list[PeerFrame], data: st.DataObject) -> None:
    reader, found = PeerFrameReader(200), list[PeerFrame]()
    rest = b"".join(map(encode_peer_frame, frames))
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        found += reader.received(rest[:size])
        rest = rest[size:]
    assert found == frames
    assert reader.kept_bytes == 0


@settings(max_examples=examples(200))
@given(st.binary(max_size=400))
def test_bytes_at_random_break_a_link_or_are_kept_within_its_limit(noise: bytes) -> None:
    door, _ = _ends()
    try:
        door.received(noise, 0.0)
    except LinkBroken:
        return
    assert not door.is_open
