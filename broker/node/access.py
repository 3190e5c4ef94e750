"""The `Access` of a node, chosen by its settings: access rules, one of an installed package, or none."""

import importlib
from collections.abc import Callable
from typing import Any

from pqbroker.broker.ground.access import Access, AclKind, AclOperation, AclResource, Principal
from pqbroker.broker.services.access.rule_access import RuleAccess
from pqbroker.conf.access import principals
from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.declare import ConfigError


class EverybodyMay:
    """Allows everything, for the audit log to say it."""

    revision = 0

    def allows(self, principal: Principal, host: str, operation: AclOperation, resource: AclResource) -> bool:
        return True

    def allows_any(self, principal: Principal, host: str, operation: AclOperation, kind: AclKind) -> bool:
        return True


def access_of(settings: BrokerSettings, in_force: Callable[[], BrokerSettings]) -> Access | None:
    """Return what decides who may do what; None: everybody may do everything. ConfigError.

    `in_force`: returns the settings of the moment.
    """
    if settings.access_class and settings.authorizer_class_name:
        raise ConfigError("authorizer.class.name and pqbroker.access.class are both set; set one of them")
    if settings.access_class:
        return _of_package(settings.access_class)
    if not settings.authorizer_class_name:
        return EverybodyMay() if settings.audit_file else None
    return RuleAccess(
        principals(settings.super_users),
        allows_unruled=settings.allow_everyone_if_no_acl_found,
        decisions_max=lambda: in_force().access_decisions_max,
    )


def _of_package(name: str) -> Access:
    module, _, attribute = name.partition(":")
    try:
        found: Any = getattr(importlib.import_module(module), attribute)
        made: Access = found()
    except (AttributeError, ImportError, TypeError, ValueError) as wrong:
        raise ConfigError(f"pqbroker.access.class is {name}, which cannot be made: {wrong}") from wrong
    lacking = [part for part in ("revision", "allows", "allows_any") if not hasattr(made, part)]
    if lacking:
        raise ConfigError(f"pqbroker.access.class is {name}, which has no {', '.join(lacking)}")
    return made
