"""Frames that no client of today sends: versions that are too old or too new, bodies that end early or late."""

from pqbroker.broker.kafka.handlers import api_versions
from pqbroker.broker.kafka.served import APIS
from tests.kafka_comparison.connection import CLOSED, SILENT
from tests.kafka_comparison.shapes import once
from tests.kafka_comparison.side import Side


def _outcome(side: Side, api_key: int, version: int, body: bytes) -> str:
    connection = side.connection()
    connection.send_frame(api_key, version, body)
    answer = connection.receive_frame()
    return answer if answer in (CLOSED, SILENT) else "an answer"


for _api in APIS:
    if _api is not api_versions.API:

        @once(_api, _api.version_min - 1)
        def too_old(side: Side, key: int = _api.key, version: int = _api.version_min - 1) -> None:
            side.keep(_outcome(side, key, version, b""))

        @once(_api, _api.version_max + 1)
        def too_new(side: Side, key: int = _api.key, version: int = _api.version_max + 1) -> None:
            side.keep(_outcome(side, key, version, b"\0" * 64))

    @once(_api, _api.version_max)
    def cut(side: Side, key: int = _api.key, version: int = _api.version_max) -> None:
        side.keep(_outcome(side, key, version, b"\x7f"))
        side.keep(_outcome(side, key, version, b"\xff" * 40), "garbage")


@once(api_versions.API, 99)
def a_version_to_come(side: Side) -> None:
    side.keep(_outcome(side, 18, 99, b""))


@once(api_versions.API, 0)
def apis_that_nobody_has(side: Side) -> None:
    for key in (-1, 200, 1000):
        side.keep(_outcome(side, key, 0, b""), str(key))
