"""A random sample of conversations, by a keyed hash of their ids.

Whether a conversation is in depends on its id, the key and the rate alone. So each process draws
the same sample, all turns of a conversation are in or out, and what is in at a low rate is also in
at any higher one. Without the key nobody can choose ids that are in.
"""

from __future__ import annotations

import hashlib
from typing import Final

_PLACES: Final = 1 << 64


class Sampler:
    """Draws samples with a key of at most 64 bytes.

    >>> sampler = Sampler(b"key")
    >>> conversations = [f"c-{number}" for number in range(1000)]
    >>> few = {one for one in conversations if sampler.includes(one, 0.05)}
    >>> more = {one for one in conversations if sampler.includes(one, 0.1)}
    >>> len(few), len(more), few < more
    (56, 109, True)
    """

    def __init__(self, key: bytes) -> None:
        self._key = key

    def includes(self, conversation_id: str, rate: float) -> bool:
        """Whether a conversation is in the sample; ``rate`` is the share of all that are, 0 to 1.

        At 0 none is in, at 1 each is.
        """
        return self._place(conversation_id) < round(rate * _PLACES)

    def _place(self, conversation_id: str) -> int:
        digest = hashlib.blake2b(
            conversation_id.encode("utf-8", "surrogatepass"),
            digest_size=8,
            key=self._key,
            person=b"judge sample",
        )
        return int.from_bytes(digest.digest(), "big")
