"""Every API and every route has a line in the tables of rights, and docs/access-rules.md has them all."""

from pqbroker.broker.ground.access import CLUSTER
from pqbroker.broker.kafka.apis.api_needs import API_NEEDS
from pqbroker.broker.kafka.served import APIS
from pqbroker.broker.web.route_needs import ROUTE_NEEDS
from pqbroker.broker.web.served import ROUTES
from tests.broker.access_cases import CASES
from tests.support.access_page import PAGE, access_page


def test_every_api_has_a_line() -> None:
    assert API_NEEDS.keys() == {api.name for api in APIS}


def test_every_route_that_asks_for_more_than_the_cluster_has_a_line() -> None:
    routes = {f"{route.method} {route.path}" for route in ROUTES if route.cluster is None}
    assert ROUTE_NEEDS.keys() == routes


def test_a_right_that_an_api_is_refused_without_is_in_its_line() -> None:
    for case in CASES:
        kinds = {(need.operation, need.kind) for need in API_NEEDS[case.api]}
        resource = CLUSTER if case.resource == CLUSTER else case.resource
        assert (case.operation, resource.kind) in kinds or case.or_else is not None, case


def test_the_page_has_the_tables() -> None:
    assert PAGE.read_text(encoding="utf-8") == access_page(), "run: python -m tests.support.access_page"
