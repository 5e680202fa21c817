"""Whether stored state is what this worker would build, and what to do if it is not."""

from __future__ import annotations

from stream_metrics.ports import Identity


class OtherIdentity(Exception):
    """The stored state was built for another group, by other settings or for other topics."""


def check_identity(stored: Identity | None, ours: Identity, partition: int) -> None:
    """Raise ``OtherIdentity``, with the way out, unless ``stored`` is what we would build."""
    if stored is None or stored == ours:
        return
    where = f"state partition {partition} of group {ours.group!r}"
    if dict(stored.partition_counts) != dict(ours.partition_counts):
        raise OtherIdentity(
            f"{where} was built for {dict(stored.partition_counts)} (topic: partitions), and "
            f"they are {dict(ours.partition_counts)} now: a conversation's next records come to "
            "another partition than its state. Stop all workers and run `stream-metrics reshard` "
            '(docs/operations.md, "Changing partition counts"); or name the topics again that it '
            "was built for"
        )
    if stored.fingerprint != ours.fingerprint:
        raise OtherIdentity(
            f"{where} was built with other settings (fingerprint {stored.fingerprint}, now "
            f"{ours.fingerprint}: thresholds, tables, limits, windows, agents or digest key). "
            "Restore them, or start a new group (kafka.group_id) that reads the topics again"
        )
    raise OtherIdentity(
        f"{where} belongs to group {stored.group!r} with schema {stored.schema_version}; "
        f"this worker is group {ours.group!r} with schema {ours.schema_version}. Use a namespace "
        "of its own for each group"
    )
