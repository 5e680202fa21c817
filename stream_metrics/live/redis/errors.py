"""Translates errors of Redis into those of the port: transient, refused, or damaged state."""

from __future__ import annotations

import re
from typing import Final

from redis import exceptions as redis

from stream_metrics.core.engine.state import DamagedState
from stream_metrics.live.ports import StoreRefused, StoreUnavailable

# Error codes of a server that temporarily cannot execute commands. For errors inside a script,
# Redis 6 puts the code in the middle of the text.
_TRANSIENT: Final = (
    "BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MISCONF", "NOREPLICAS", "OOM", "READONLY",
    "TRYAGAIN", "UNBLOCKED",
)  # fmt: skip
_CODE = re.compile(rf"(?:^|@user_script: ?\d+: ?)-?({'|'.join(_TRANSIENT)})\b")

_OTHER_TYPE: Final = "WRONGTYPE"  # in Redis 6 also in the middle of the text, as above

_DENIED = re.compile("NOPERM|The user executing the script can't")  # the latter in Redis 7.0
_COMMAND = re.compile(r"(?:run the '|may not run )([\w|]+)")

WHOLE_COMMAND: Final = "(docs/guides/security.md has the whole command)"

_TRANSIENT_TYPES: Final = (
    redis.ConnectionError,
    redis.TimeoutError,
    redis.OutOfMemoryError,
    redis.ReadOnlyError,
    redis.TryAgainError,
    redis.ClusterError,
    redis.RedisClusterException,
    redis.InvalidResponse,
    OSError,
)
_REFUSALS: Final = (
    redis.AuthenticationError,
    redis.AuthenticationWrongNumberOfArgsError,
    redis.AuthorizationError,
    redis.NoPermissionError,
)


def translate_error(error: Exception, place: str = "a key") -> Exception:
    """The port's error for one of Redis; ``error`` itself if the port has none."""
    refusal = _refusal(error)
    if refusal is not None:
        return StoreRefused(_refusal_message(refusal))
    if isinstance(error, _TRANSIENT_TYPES):
        return StoreUnavailable(f"Redis is unavailable: {_reason(error)}")
    if isinstance(error, redis.ResponseError) and _CODE.search(str(error)):
        return StoreUnavailable(f"Redis cannot take commands now: {_reason(error)}")
    if isinstance(error, redis.ResponseError) and _OTHER_TYPE in str(error):
        return DamagedState(f"{place} has a type of value that no release writes")
    return error


def is_demoted(error: Exception) -> bool:
    """Whether the server is no longer a master, so that connections to it must be closed."""
    if isinstance(error, redis.ReadOnlyError):
        return True
    found = _CODE.search(str(error)) if isinstance(error, redis.ResponseError) else None
    return found is not None and found[1] == "READONLY"


def _refusal_message(error: Exception) -> str:
    """The message for a refusal: the command or key, and what to grant."""
    text = _text(error)
    command = _COMMAND.search(text)
    what = f"+{command[1].lower()}" if command else "the keys of the namespace"
    grant = f"; grant {what} {WHOLE_COMMAND}" if command or "of the keys" in text else ""
    return f"Redis refuses this user: {text}{grant}"


def _refusal(error: Exception) -> Exception | None:
    """The refusal that is the error or one of its causes; None if there is none."""
    cause: BaseException | None = error
    while isinstance(cause, Exception):
        if isinstance(cause, _REFUSALS) or _DENIED.search(str(cause)[:200]):
            return cause
        # The Cluster client raises its own error in the context of the node's.
        hidden = cause.__context__ if isinstance(cause, redis.RedisClusterException) else None
        cause = cause.__cause__ or hidden
    return None


def _reason(error: Exception) -> str:
    code = getattr(error, "status_code", None)
    text = _text(error) or type(error).__name__
    return f"{code} {text}"[:300] if code else text[:300]


def _text(error: Exception) -> str:
    """What the client or Redis says, without the full stop: other words follow it."""
    return " ".join(str(error).split()).rstrip(".")
