"""Every table of the SQLite file, in one place.

Names that come from outside are stored as bytes, because SQLite refuses texts with lone surrogates.
A ``place`` is one state partition of one generation. It is never used again, so that a late step of
a wipe cannot touch newer state. The parts of conversations are stored by a number instead of their
keys, which are random: a batch has conversations that began at about the same time, and so it
writes few pages.
"""

from __future__ import annotations

import sqlite3
from typing import Final

APPLICATION_ID: Final = 0x73_6D_31_00  # "sm1"
VERSION: Final = 3

_STATE: Final = """
CREATE TABLE layout (id INTEGER PRIMARY KEY CHECK (id = 0), document BLOB NOT NULL);
CREATE TABLE notes (name BLOB PRIMARY KEY, text BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE partitions (
    place INTEGER PRIMARY KEY AUTOINCREMENT,
    mark TEXT NOT NULL,                        -- of the generation
    number INTEGER NOT NULL,
    token BLOB NOT NULL,                       -- the owner's
    batch BLOB NOT NULL DEFAULT x'',           -- the id of the last one
    wiping INTEGER NOT NULL DEFAULT 0,         -- what is left is no state any more
    worker BLOB NOT NULL DEFAULT x'',          -- who sent the last heartbeat, when, and its lag
    beat_ms INTEGER NOT NULL DEFAULT 0,
    behind_ms INTEGER,
    beat_token BLOB NOT NULL DEFAULT x'',
    UNIQUE (mark, number)
);
CREATE TABLE frozen (
    mark TEXT NOT NULL,
    number INTEGER NOT NULL,
    by INTEGER NOT NULL,                       -- the generation that has replaced this one
    PRIMARY KEY (mark, number)
) WITHOUT ROWID;
CREATE TABLE positions (
    place INTEGER NOT NULL,
    topic BLOB NOT NULL,
    "offset" INTEGER NOT NULL,
    last_timestamp_ms INTEGER NOT NULL,
    last_digest BLOB NOT NULL,
    record_time_ms INTEGER NOT NULL,
    event_time_us INTEGER NOT NULL,
    PRIMARY KEY (place, topic)
) WITHOUT ROWID;
CREATE TABLE marks (
    place INTEGER NOT NULL,
    mark BLOB NOT NULL,
    PRIMARY KEY (place, mark)
) WITHOUT ROWID;
CREATE TABLE buckets (
    place INTEGER NOT NULL,
    "window" BLOB NOT NULL,
    bucket INTEGER NOT NULL,
    agent BLOB NOT NULL,
    sums BLOB NOT NULL,
    PRIMARY KEY (place, "window", bucket, agent)
) WITHOUT ROWID;
CREATE TABLE conversations (
    id INTEGER PRIMARY KEY,                    -- in the order in which they began
    place INTEGER NOT NULL,
    key BLOB NOT NULL,
    last_record_ms INTEGER NOT NULL,
    UNIQUE (place, key)
);
CREATE INDEX conversations_by_age ON conversations (place, last_record_ms, key);
CREATE TABLE hot (
    conversation INTEGER NOT NULL,
    name BLOB NOT NULL,
    part BLOB NOT NULL,
    PRIMARY KEY (conversation, name)
) WITHOUT ROWID;
CREATE TABLE fingerprints (                    -- large rows, which an index holds badly
    conversation INTEGER NOT NULL,
    name BLOB NOT NULL,
    part BLOB NOT NULL,
    PRIMARY KEY (conversation, name)
);
"""

_LOG: Final = """
CREATE TABLE logs (
    topic TEXT PRIMARY KEY,
    first INTEGER NOT NULL DEFAULT 0,          -- the first offset that is kept
    "end" INTEGER NOT NULL DEFAULT 0,
    aged INTEGER NOT NULL DEFAULT 0,           -- records that were deleted because of their age
    crowded INTEGER NOT NULL DEFAULT 0         -- and to make room
) WITHOUT ROWID;
CREATE TABLE commits (
    reader TEXT NOT NULL,
    topic TEXT NOT NULL,
    "offset" INTEGER NOT NULL,
    note TEXT NOT NULL,
    PRIMARY KEY (reader, topic)
) WITHOUT ROWID;
CREATE TABLE letters (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    written_ms INTEGER NOT NULL,
    topic TEXT NOT NULL,
    "offset" INTEGER NOT NULL,
    timestamp_ms INTEGER,
    key BLOB,
    value BLOB,
    reason TEXT NOT NULL,
    message TEXT NOT NULL,
    digest BLOB NOT NULL,                      -- of all that tells it from another one
    UNIQUE (topic, "offset", digest)
);
CREATE INDEX letters_by_key ON letters (topic, key, id);
CREATE TABLE letter_marks (                    -- what commands note about letters
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    written_ms INTEGER NOT NULL,
    topic TEXT NOT NULL,
    key BLOB,
    headers TEXT NOT NULL
);
"""

_TOPIC: Final = """
CREATE TABLE {topic} (                         -- blocks of records
    "offset" INTEGER PRIMARY KEY,              -- of the first
    records INTEGER NOT NULL,                  -- how many
    timestamp_ms INTEGER NOT NULL,             -- when they were received
    content BLOB                               -- their keys and values; NULL if they were emptied
);
CREATE INDEX {topic}_by_time ON {topic} (timestamp_ms);
CREATE TABLE {topic}_keys (                    -- which blocks have a key
    key BLOB NOT NULL,
    "offset" INTEGER NOT NULL,                 -- of the block
    last INTEGER NOT NULL,                     -- the last record with the key in it
    PRIMARY KEY (key, "offset")
) WITHOUT ROWID;
INSERT INTO logs (topic) VALUES ('{topic}');
"""

_TRACES: Final = """
CREATE TABLE told (                            -- traces whose events are stored, while a process
    "offset" INTEGER NOT NULL,                 -- that starts would read them again
    trace BLOB NOT NULL,
    PRIMARY KEY ("offset", trace)
) WITHOUT ROWID;
CREATE TABLE scores (                          -- that wait until their trace is told
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    arrived_ms INTEGER NOT NULL,
    trace TEXT NOT NULL,
    record BLOB NOT NULL
);
"""

JUDGE: Final = """
CREATE TABLE IF NOT EXISTS judge_budget (      -- made by the first judge; other releases ignore it
    day INTEGER NOT NULL,
    writer TEXT NOT NULL,                      -- a process, by a name of its own
    entry BLOB NOT NULL,
    PRIMARY KEY (day, writer)
) WITHOUT ROWID
"""

EVENTS: Final = "events"
SPANS: Final = "spans"
TOPICS: Final = (EVENTS, SPANS)


def refusal(connection: sqlite3.Connection) -> str | None:
    """Why the file is not one of ours; None if it is, or is empty."""
    [owner] = connection.execute("PRAGMA application_id").fetchone()
    [version] = connection.execute("PRAGMA user_version").fetchone()
    if not _has_tables(connection):
        return None
    if owner != APPLICATION_ID:
        return "this is a database of another program. Choose another folder"
    if version == VERSION:
        return None
    if version > VERSION:
        when, advice = "a later", "Use that release, or a later one"
    else:
        when = "an earlier"
        advice = "Choose another folder; that release can still replay and record this one"
    return f"{when} release has written it (format {version}; this one reads {VERSION}). {advice}"


def create_tables(connection: sqlite3.Connection) -> None:
    """Create the tables of a new file, all or none."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        if not _has_tables(connection):
            topics = [_TOPIC.format(topic=topic) for topic in TOPICS]
            for statement in "".join([_STATE, _LOG, *topics, _TRACES]).split(";\n"):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _has_tables(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is not None
