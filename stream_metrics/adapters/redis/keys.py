"""Every key and field name in Redis, in one place. Nothing has a TTL: expiry is a write.

=============================================  ======  ==========================================
key                                            type    content
=============================================  ======  ==========================================
``sm:<namespace>:1:layout``                    hash    state partition to its hash tag; ``draft:``,
                                                       ``retired:``, ``held`` and ``switched``
                                                       of a move
``sm:<namespace>:1:registry:<kind>``           zset    admitted names by order of admission
``sm:<namespace>:1:{<tag>}:meta``              hash    owner, identity, positions, windows, batch
``sm:<namespace>:1:{<tag>}:idle``              zset    conversation key to last record, in ms
``sm:<namespace>:1:{<tag>}:h:<conversation>``  hash    hot parts
``sm:<namespace>:1:{<tag>}:f:<conversation>``  hash    fingerprint parts
``sm:<namespace>:1:{<tag>}:w:<window>``        hash    ``<bucket>|<agent>`` to sums
=============================================  ======  ==========================================

The ``1`` is the version of this layout. ``<conversation>`` is the base64url of a digest.
"""

from __future__ import annotations

import itertools
import re
from base64 import urlsafe_b64encode
from collections.abc import Container
from typing import Final
from urllib.parse import quote

from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot

PREFIX: Final = "sm"
LAYOUT_VERSION: Final = 1
REGISTRIES: Final = ("agents", "releases", "routes")

# fields of ``layout`` beside the numbers of partitions
HELD: Final = b"held"  # mark and command of who replaces partitions
SWITCHED: Final = b"switched"  # the mark of the last switch since the last release
DRAFT: Final = b"draft:"  # + number
RETIRED: Final = b"retired:"  # + tag

# fields of ``meta``
TOKEN: Final = b"token"
BATCH_ID: Final = b"batch"
BEAT: Final = b"beat"  # of the owner's last heartbeat: time, how far it is behind, its token
WORKER: Final = b"worker"  # the name that came with it
FROZEN: Final = b"frozen"  # the mark of who holds the namespace
WIPING: Final = b"wiping"  # beside window names all that a wipe leaves there until its end
GROUP: Final = b"i:group"
SCHEMA_VERSION: Final = b"i:schema"
FINGERPRINT: Final = b"i:fingerprint"
SETTINGS: Final = b"i:settings"  # those behind the fingerprint, as JSON
PARTITION_COUNTS: Final = b"i:counts"
OUTGROWN: Final = b"i:outgrown"  # ends of logs by topic, as JSON
KEPT_SINCE: Final = b"i:kept"  # record time, in ms
OFFSET: Final = b"o:"  # + topic
LAST: Final = b"l:"  # + topic
WINDOW: Final = b"w:"  # + window

_NAMESPACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")


class Keys:
    """The keys of a namespace; ``ValueError`` for a name that could not be part of a key."""

    def __init__(self, namespace: str) -> None:
        if not _NAMESPACE.match(namespace):
            raise ValueError(
                f"{namespace!r} is not a namespace; write up to 64 letters, digits, '.', '_' or '-'"
            )
        self.prefix = f"{PREFIX}:{namespace}:{LAYOUT_VERSION}"
        self.layout = f"{self.prefix}:layout".encode()

    def registry(self, kind: str) -> bytes:
        """Who was admitted to series of its own."""
        return f"{self.prefix}:registry:{quote(kind, safe='')}".encode()

    def partition(self, tag: str) -> PartitionKeys:
        """The keys of the state partition that has ``tag``."""
        return PartitionKeys(f"{self.prefix}:{{{tag}}}:".encode())


class PartitionKeys:
    """The keys of one state partition, all in one slot."""

    __slots__ = ("_base", "_fingerprints", "_hot", "conversations", "idle", "meta")

    def __init__(self, base: bytes) -> None:
        self._base = base
        self._hot = base + b"h:"
        self._fingerprints = base + b"f:"
        self.conversations = base + b"[hf]:*"  # a pattern of all parts of all conversations
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


def choose_tag(partition: int, count: int, taken: Container[str] = (), mark: str = "") -> str:
    """The hash tag of ``partition`` of ``count``: its slot lies in the middle of its share.

    The slots are cut into ``count`` equal shares, so that whatever contiguous ranges the masters
    of a Cluster own, each gets its part of the partitions. It is none of the ``taken``. The same
    arguments give the same tag; with a ``mark`` it is one that no other mark gives.

    >>> key_slot(choose_tag(1, 4).encode()) // 4096
    1
    """
    share = REDIS_CLUSTER_HASH_SLOTS / max(count, partition + 1)
    first = int((partition + 0.25) * share)
    last = max(first, int((partition + 0.75) * share) - 1)
    for salt in itertools.count():
        tag = f"{partition}.{mark}-{salt:x}" if mark else f"{partition}.{salt:x}"
        if first <= key_slot(tag.encode()) <= last and tag not in taken:
            return tag
    raise AssertionError("there are always more")
