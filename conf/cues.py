"""Settings of brokers for tests: the doors under `/v1/test` and their limits. `broker.BrokerSettings` lists them."""

from pqbroker.conf.declare import Kind, setting

TEST_DOOR = setting(
    "pqbroker.test.door", Kind.BOOLEAN, False,
    "Allow HTTP clients to make requests and the store fail, to move the clock (`/v1/test/…`) and to change keys of "
    "tablets (`/v1/tablets/ID/commands`). Only for brokers in tests.", earlier="pqbroker.test.commands",
)  # fmt: skip
TEST_FAULTS_MAX = setting(
    "pqbroker.test.faults.max", Kind.INT, 100, "Faults of requests that are on at once at most; one more is refused.",
    low=1, high=10_000,
)  # fmt: skip
TEST_HOLD_MS_MAX = setting(
    "pqbroker.test.hold.ms.max", Kind.INT, 600_000, "Time that a delay or a pause on cue holds an answer at most.",
    low=1,
)  # fmt: skip
TEST_CLOCK_MS_MAX = setting(
    "pqbroker.test.clock.ms.max", Kind.LONG, 100 * 365 * 86_400_000,
    "Time by which tests may move the clock forward, all moves together.", low=0, high=1000 * 365 * 86_400_000,
)  # fmt: skip
