"""Which of Redis's errors pass by themselves, and which somebody must do something about."""

from __future__ import annotations

import re
from typing import Final

from redis import exceptions as redis

from stream_metrics.engine.state import DamagedState
from stream_metrics.ports import StoreRefused, StoreUnavailable

# What a server answers while it cannot take a command but will again. Redis 6 names the code of an
# error inside a script in the middle of its text.
_PASSING: Final = (
    "BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MISCONF", "NOREPLICAS", "OOM", "READONLY",
    "TRYAGAIN", "UNBLOCKED",
)  # fmt: skip
_CODE = re.compile(rf"(?:^|@user_script: ?\d+: ?)-?({'|'.join(_PASSING)})\b")

_OTHER_TYPE: Final = "WRONGTYPE"  # of Redis 6 inside a script, too: in the middle of its text

_DENIED = re.compile("NOPERM|The user executing the script can't")  # the latter in Redis 7.0
_COMMAND = re.compile(r"(?:run the '|may not run )([\w|]+)")

WHOLE_COMMAND: Final = "(docs/guides/security.md has the whole command)"

_PASSING_TYPES: Final = (
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


def translated(error: Exception) -> Exception:
    """The error as the port has it; ``error`` itself where it is neither passing, nor a refusal,
    nor damage."""
    refusal = _refusal(error)
    if refusal is not None:
        return StoreRefused(_refused(refusal))
    if isinstance(error, _PASSING_TYPES):
        return StoreUnavailable(f"Redis is unavailable: {_reason(error)}")
    if isinstance(error, redis.ResponseError) and _CODE.search(str(error)):
        return StoreUnavailable(f"Redis cannot take commands now: {_reason(error)}")
    if isinstance(error, redis.ResponseError) and _OTHER_TYPE in str(error):
        return DamagedState("a key has a type of value that no release writes")
    return error


def demoted(error: Exception) -> bool:
    """True if the server is no master (any more), so that connections to it are of no use."""
    if isinstance(error, redis.ReadOnlyError):
        return True
    found = _CODE.search(str(error)) if isinstance(error, redis.ResponseError) else None
    return found is not None and found[1] == "READONLY"


def _refused(error: Exception) -> str:
    """Which command or key it was, and what to grant."""
    text = " ".join(str(error).split())
    command = _COMMAND.search(text)
    what = f"+{command[1].lower()}" if command else "the keys of the namespace"
    grant = f"; grant {what} {WHOLE_COMMAND}" if command or "of the keys" in text else ""
    return f"Redis refuses this user: {text}{grant}"


def _refusal(error: Exception) -> Exception | None:
    """The refusal that is the error or the cause of it."""
    cause: BaseException | None = error
    while isinstance(cause, Exception):
        if isinstance(cause, _REFUSALS) or _DENIED.search(str(cause)[:200]):
            return cause
        # a Cluster's client hides what the node said behind an error of its own
        hidden = cause.__context__ if isinstance(cause, redis.RedisClusterException) else None
        cause = cause.__cause__ or hidden
    return None


def _reason(error: Exception) -> str:
    code = getattr(error, "status_code", None)
    text = " ".join(str(error).split()) or type(error).__name__
    return f"{code} {text}"[:300] if code else text[:300]
