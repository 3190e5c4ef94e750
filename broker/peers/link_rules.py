"""Rules of one end of a peer link, pure: who may say what when. `peer_link.py` performs them.

One end opens the door, the other comes to it; both know a secret that only their parent process gives out.

| state      | end   | frame that comes          | next       | what is sent                              |
|------------|-------|---------------------------|------------|-------------------------------------------|
| expecting  | door  | HELLO of this version     | challenged | CHALLENGE: the door's nonce and its proof |
| challenged | door  | PROOF that is right       | open       | ACCEPTANCE                                |
| greeting   | comer | CHALLENGE, proof is right | proving    | PROOF                                     |
| proving    | comer | ACCEPTANCE                | open       |                                           |
| open       | both  | HEARTBEAT, NOTE, REQUEST, | open       |                                           |
|            |       | ANSWER, REFUSAL           |            |                                           |

Any other frame breaks the link, and so do a silence of `silence_s`, and a greeting that is not over after `greeting_s`.
Time in which this end did not look, because its own process was stopped, is no silence of the other one: what came
meanwhile is not read yet.
A proof is a MAC over both nonces and the facts of both ends, so that one that was overheard proves nothing on another
link. Request ids rise: a request that is sent again breaks the link. An answer has the id of a request that waits for
it.
"""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from struct import Struct
from typing import Final

from pqbroker.broker.peers.peer_frames import FrameKind, LinkBroken, PeerFrame, PeerFrameReader

LINK_VERSION: Final = 1
"""Version of the link's frames and of everything that is sent in them: both ends have the same."""
NONCE_BYTES: Final = 32
GREETING_BYTES_MAX: Final = 256
"""Largest frame before the link is open."""
REQUESTS_MAX: Final = 1000
"""Requests of one end that wait for their answers at most."""
LATE_LOOKS: Final = 3
"""Looks for a silence that an end may miss before the time without them counts as a stop of its own process."""
_MAGIC: Final = b"pqb-peer"
_HELLO: Final = Struct(f">8sHH{NONCE_BYTES}s")
_CHALLENGE: Final = Struct(f">H{NONCE_BYTES}s32s")


class LinkBusy(Exception):
    """The link takes no request more now; the text says why."""


class LinkState(Enum):
    """States of one end, as in the table above."""

    EXPECTING = auto()
    CHALLENGED = auto()
    GREETING = auto()
    PROVING = auto()
    OPEN = auto()


_TRAFFIC: Final = (FrameKind.HEARTBEAT, FrameKind.NOTE, FrameKind.REQUEST, FrameKind.ANSWER, FrameKind.REFUSAL)
LINK_STATES: Final[Mapping[tuple[LinkState, FrameKind], LinkState]] = {
    (LinkState.EXPECTING, FrameKind.HELLO): LinkState.CHALLENGED,
    (LinkState.CHALLENGED, FrameKind.PROOF): LinkState.OPEN,
    (LinkState.GREETING, FrameKind.CHALLENGE): LinkState.PROVING,
    (LinkState.PROVING, FrameKind.ACCEPTANCE): LinkState.OPEN,
    **{(LinkState.OPEN, kind): LinkState.OPEN for kind in _TRAFFIC},
}


@dataclass(frozen=True, slots=True)
class LinkTerms:
    """Terms of a link. `node`: the number of the node at the comer's end; `secret`: known to both ends alone."""

    secret: bytes
    node: int = 0
    frame_bytes_max: int = 1 << 27
    silence_s: float = 3.0
    greeting_s: float = 10.0
    beat_s: float = 0.5
    """Seconds between heartbeats, and between looks for a silence: a fraction of the other end's `silence_s`."""


class LinkRules:
    """One end of a link. `nonce`: bytes that were never used before; `now`: seconds of a clock that only rises."""

    def __init__(self, terms: LinkTerms, nonce: bytes, now: float, *, is_door: bool) -> None:
        assert len(nonce) == NONCE_BYTES
        self.state = LinkState.EXPECTING if is_door else LinkState.GREETING
        self.node = terms.node
        """Number of the comer's node; at the door 0 until it has said it."""
        self._terms = terms
        self._nonce = nonce
        self._others_nonce = b""
        self._reader = PeerFrameReader(GREETING_BYTES_MAX)
        self._heard_at = self._looked_at = now
        self._asked = 0
        self._waiting: set[int] = set()
        self._served = 0
        self.silence_s = terms.silence_s
        """Seconds of silence that are allowed; may be changed."""

    @property
    def is_open(self) -> bool:
        return self.state is LinkState.OPEN

    def hello(self) -> PeerFrame:
        """Return the first frame of the comer."""
        return _greeting(FrameKind.HELLO, _HELLO.pack(_MAGIC, LINK_VERSION, self._terms.node, self._nonce))

    def received(self, data: bytes, now: float) -> tuple[list[PeerFrame], list[PeerFrame]]:
        """Return what is to be sent for these bytes, and the notes, requests, answers and refusals among them. Raises
        LinkBroken: then nothing of the bytes counts, and the link closes."""
        replies, taken = [], []
        for frame in self._reader.received(data):
            following = LINK_STATES.get((self.state, frame.kind))
            if following is None:
                raise LinkBroken(f"a frame {frame.kind.name} came while the link was {self.state.name.lower()}")
            reply = self._greet(frame) if self.state is not LinkState.OPEN else None
            if reply is not None:
                replies.append(reply)
            if self.state is LinkState.OPEN:
                self._check(frame)
                taken.append(frame)
            if self.state is not following:
                self.state = following
                self._reader.frame_bytes_max = (
                    self._terms.frame_bytes_max if following is LinkState.OPEN else GREETING_BYTES_MAX
                )
            if self.state is LinkState.OPEN:
                self._heard_at = now
        return replies, [frame for frame in taken if frame.kind is not FrameKind.HEARTBEAT]

    def check_silence(self, now: float) -> None:
        """Raise LinkBroken if no whole frame has come for too long, or the greeting lasts too long. Called every
        `beat_s`."""
        if now - self._looked_at > LATE_LOOKS * self._terms.beat_s:
            self._heard_at += now - max(self._looked_at, self._heard_at)
        self._looked_at = now
        silent_s = now - self._heard_at
        most_s = self.silence_s if self.is_open else self._terms.greeting_s
        if silent_s > most_s:
            what = "nothing came" if self.is_open else "the greeting did not end"
            raise LinkBroken(f"{what} for {silent_s:.1f} s; {most_s:g} s are allowed")

    def ask(self) -> int:
        """Return the id of a new request, which counts until its answer comes. Raises LinkBusy."""
        if len(self._waiting) >= REQUESTS_MAX:
            raise LinkBusy(f"{REQUESTS_MAX} requests of this node wait for their answers; try again later")
        self._asked += 1
        self._waiting.add(self._asked)
        return self._asked

    def _check(self, frame: PeerFrame) -> None:
        if frame.kind is FrameKind.REQUEST:
            if frame.request_id <= self._served:
                raise LinkBroken(f"request {frame.request_id} came after request {self._served}")
            self._served = frame.request_id
        elif frame.kind in (FrameKind.ANSWER, FrameKind.REFUSAL):
            if frame.request_id not in self._waiting:
                raise LinkBroken(f"an answer came to request {frame.request_id}, which waits for none")
            self._waiting.discard(frame.request_id)

    def _greet(self, frame: PeerFrame) -> PeerFrame | None:
        if frame.kind is FrameKind.HELLO:
            return self._challenge(frame.payload)
        if frame.kind is FrameKind.CHALLENGE:
            return self._prove(frame.payload)
        if frame.kind is FrameKind.PROOF:
            if not hmac.compare_digest(frame.payload, self._mac(b"comer", self._others_nonce, self._nonce)):
                raise LinkBroken("the other end does not know the secret of this broker")
            return _greeting(FrameKind.ACCEPTANCE, b"")
        return None

    def _challenge(self, payload: bytes) -> PeerFrame:
        if len(payload) != _HELLO.size:
            raise LinkBroken(f"a HELLO has {len(payload)} bytes; {_HELLO.size} are right")
        magic, version, self.node, self._others_nonce = _HELLO.unpack(payload)
        if magic != _MAGIC:
            raise LinkBroken("what came is no peer of this broker")
        _check_version(version)
        proof = self._mac(b"door", self._others_nonce, self._nonce)
        return _greeting(FrameKind.CHALLENGE, _CHALLENGE.pack(LINK_VERSION, self._nonce, proof))

    def _prove(self, payload: bytes) -> PeerFrame:
        if len(payload) != _CHALLENGE.size:
            raise LinkBroken(f"a CHALLENGE has {len(payload)} bytes; {_CHALLENGE.size} are right")
        version, self._others_nonce, proof = _CHALLENGE.unpack(payload)
        _check_version(version)
        if not hmac.compare_digest(proof, self._mac(b"door", self._nonce, self._others_nonce)):
            raise LinkBroken("the other end does not know the secret of this broker")
        return _greeting(FrameKind.PROOF, self._mac(b"comer", self._nonce, self._others_nonce))

    def _mac(self, end: bytes, comers_nonce: bytes, doors_nonce: bytes) -> bytes:
        facts = _HELLO.pack(_MAGIC, LINK_VERSION, self.node, comers_nonce)
        return hmac.digest(self._terms.secret, end + b"\0" + facts + doors_nonce, "sha256")


def _check_version(version: int) -> None:
    if version != LINK_VERSION:
        raise LinkBroken(f"the other end speaks version {version} of the peer link, this one version {LINK_VERSION}")


def _greeting(kind: FrameKind, payload: bytes) -> PeerFrame:
    return PeerFrame(kind, 0, payload)
