"""What only a broker of tests does over HTTP (`pqbroker.test.commands`): a refusal names the setting."""

from pqbroker.broker.context import Node
from pqbroker.broker.http.problems import Problem


def check_test_broker(node: Node, what: str) -> None:
    """Problem unless the node is one for tests."""
    if not node.settings.test_commands:
        raise Problem(
            403, "NO_TEST_BROKER", f"{what} are for test brokers", "Start one with --set pqbroker.test.commands=true."
        )
