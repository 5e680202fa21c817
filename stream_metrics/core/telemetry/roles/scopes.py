"""Which instrumentation scopes are used, by service."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from stream_metrics.core.telemetry.spans import Span, service_of


@dataclass(frozen=True, slots=True)
class ScopeChoice:
    """The instrumentation scopes to use.

    Attributes:
        everywhere: Of services that ``by_service`` does not name; all if empty.
        by_service: By ``service.name``; spans without a usable one are under the empty text.
    """

    everywhere: frozenset[str] = frozenset()
    by_service: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def leaves_out(self, span: Span) -> bool:
        """Whether the span's scope is not to be used."""
        if not (self.everywhere or self.by_service):
            return False
        used = self._used(service_of(span) or "")
        return bool(used) and span.scope not in used

    def names(self, service: str) -> bool:
        """Whether the scopes of the service were chosen."""
        return bool(self._used(service))

    def _used(self, service: str) -> frozenset[str]:
        return self.by_service.get(service, self.everywhere)


ALL_SCOPES: Final = ScopeChoice()


def scopes_setting(service: str | None, scope: str) -> str:
    """How to choose a scope for a service, as part of a message.

    >>> scopes_setting("support", "langfuse")
    'if that scope is the one to use, set otlp.scopes = {"support" = ["langfuse"]}'
    """
    return f"if that scope is the one to use, set {scopes_table(service or '', [scope])}"


def scopes_table(service: str, scopes: Sequence[str]) -> str:
    """The setting that chooses scopes for a service."""
    name, chosen = (json.dumps(one, ensure_ascii=False) for one in (service, list(scopes)))
    return f"otlp.scopes = {{{name} = {chosen}}}"
