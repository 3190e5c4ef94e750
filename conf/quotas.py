"""Settings of clients' quotas: their windows and limits. `broker.BrokerSettings` lists them."""

from pqbroker.conf.declare import Kind, setting

WINDOW_NUM = setting(
    "quota.window.num", Kind.INT, 11,
    "Windows for which an address saves up connections that it does not make (connection_creation_rate).", low=1,
    high=1000,
)  # fmt: skip
WINDOW_SIZE_SECONDS = setting(
    "quota.window.size.seconds", Kind.INT, 1,
    "Seconds of a window of clients' quotas. A client saves up bytes and processor time that it does not use for a "
    "quarter of it.", low=1, high=86_400,
)  # fmt: skip
CONTROLLER_WINDOW_NUM = setting(
    "controller.quota.window.num", Kind.INT, 11,
    "Windows for which a client saves up partitions that it may create and delete (controller_mutation_rate).",
    low=1, high=1000,
)  # fmt: skip
QUOTAS_MAX = setting(
    "pqbroker.quotas.max", Kind.INT, 10_000,
    "Users, client ids and addresses with quotas of their own at most; one more is refused with POLICY_VIOLATION.",
    low=1, high=100_000,
)  # fmt: skip
QUOTA_NAME_BYTES_MAX = setting(
    "pqbroker.quota.name.bytes.max", Kind.INT, 1024,
    "Bytes of the names of a user and a client id with a quota together at most; above: INVALID_REQUEST.", low=64,
    high=32_768,
)  # fmt: skip
CLIENTS_MAX = setting(
    "pqbroker.quota.clients.max", Kind.INT, 10_000,
    "Clients whose use of quotas is kept in memory at most, a few KiB each; of one more, that of another is forgotten.",
    low=100, high=1_000_000,
)  # fmt: skip
