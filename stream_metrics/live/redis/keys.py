"""Every key and field name in Redis, in one place. Nothing has a TTL: expiry is a write.

=============================================  ======  ==========================================
key                                            type    content
=============================================  ======  ==========================================
``sm:<namespace>:2:layout``                    hash    the document of the generations, its version
``sm:<namespace>:2:notes``                     hash    small texts by name, such as what was told
``sm:<namespace>:2:{<tag>}:meta``              hash    owner, positions, windows, batch, marks
``sm:<namespace>:2:{<tag>}:idle``              zset    conversation key to last record, in ms
``sm:<namespace>:2:{<tag>}:h:<conversation>``  hash    hot parts
``sm:<namespace>:2:{<tag>}:f:<conversation>``  hash    fingerprint parts
``sm:<namespace>:2:{<tag>}:w:<window>``        hash    ``<bucket>|<agent>`` to sums
=============================================  ======  ==========================================

The ``2`` is the version of these keys. ``<conversation>`` is the base64url of a digest; a ``<tag>``
belongs to one partition of one generation, and the document of the generations names it.
"""

from __future__ import annotations

import itertools
import re
from base64 import urlsafe_b64encode
from typing import Final
from urllib.parse import quote

from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot

PREFIX: Final = "sm"
LAYOUT_VERSION: Final = 2

# fields of ``layout``
DOCUMENT: Final = b"document"
VERSION: Final = b"version"

# fields of ``meta``
TOKEN: Final = b"token"
BATCH_ID: Final = b"batch"
BEAT: Final = b"beat"  # the owner's last heartbeat: time, lag in ms, its token
WORKER: Final = b"worker"  # the name of the worker that sent it
FROZEN: Final = b"frozen"  # the number of the generation that has replaced this one
WIPING: Final = (
    b"wiping"  # set during a wipe, which also keeps the windows and FROZEN until its end
)
UNLISTED: Final = b"unlisted"  # there may be windows and conversations that nothing lists
OFFSET: Final = b"o:"  # + topic
LAST: Final = b"l:"  # + topic
WINDOW: Final = b"w:"  # + window
MARK: Final = b"m:"  # + mark

_NAMESPACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")


class Keys:
    """The keys of a namespace; raises ``ValueError`` for an invalid name."""

    def __init__(self, namespace: str) -> None:
        if not _NAMESPACE.match(namespace):
            raise ValueError(
                f"{namespace!r} is not a namespace; write up to 64 letters, digits, '.', '_' or '-'"
            )
        self.prefix = f"{PREFIX}:{namespace}:{LAYOUT_VERSION}"
        self.layout = f"{self.prefix}:layout".encode()
        self.notes = f"{self.prefix}:notes".encode()

    def partition(self, tag: str) -> PartitionKeys:
        """The keys of the state partition that has ``tag``."""
        return PartitionKeys(f"{self.prefix}:{{{tag}}}:".encode())


class PartitionKeys:
    """The keys of one state partition, all in one slot."""

    __slots__ = ("_base", "_fingerprints", "_hot", "all", "contents", "idle", "meta")

    def __init__(self, base: bytes) -> None:
        self._base = base
        self._hot = base + b"h:"
        self._fingerprints = base + b"f:"
        self.all = base + b"*"  # a pattern of all keys
        self.contents = base + b"[hfw]:*"  # a pattern of all conversations and windows
        self.meta = base + b"meta"
        self.idle = base + b"idle"

    def hot(self, key: bytes) -> bytes:
        """The hot parts of a conversation."""
        return self._hot + urlsafe_b64encode(key).rstrip(b"=")

    def fingerprints(self, key: bytes) -> bytes:
        """The fingerprint parts of a conversation."""
        return self._fingerprints + urlsafe_b64encode(key).rstrip(b"=")

    def window(self, window: str) -> bytes:
        """The buckets of a window."""
        return self._base + b"w:" + quote(window, safe="").encode()


def choose_tags(count: int, mark: str) -> tuple[str, ...]:
    """The hash tags of ``count`` partitions, spread evenly over the slots of a Cluster.

    The slots are divided into ``count`` equal ranges, and each tag's slot is near the middle of its
    range, so that masters with contiguous slots get their proportion of the partitions. Different
    ``mark`` values give different tags.

    >>> key_slot(choose_tags(4, "a")[1].encode()) // 4096
    1
    """
    return tuple(_choose_tag(partition, count, mark) for partition in range(count))


def _choose_tag(partition: int, count: int, mark: str) -> str:
    share = REDIS_CLUSTER_HASH_SLOTS / count
    first = int((partition + 0.25) * share)
    last = max(first, int((partition + 0.75) * share) - 1)
    for salt in itertools.count():
        tag = f"{partition}.{mark}-{salt:x}"
        if first <= key_slot(tag.encode()) <= last:
            return tag
    raise AssertionError("there are always more")
