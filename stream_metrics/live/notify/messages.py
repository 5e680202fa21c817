"""What a notice says: as alerts for Alertmanager, or as a message for Slack and what takes the
same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlencode

from stream_metrics.live.notify.episodes import REPEAT_SECONDS, Episode, Notice

NAMED: Final = 20  # subjects in a message for people
FORGOTTEN_SECONDS: Final = 2 * REPEAT_SECONDS
"""For how long Alertmanager takes a fault for lasting, so that a repeat may come late."""

MINUTE, HOUR = 60.0, 3600.0


@dataclass(frozen=True, slots=True)
class About:
    """How a rule is called, and what its subjects are: the label of them, such as `agent`.

    ``runbook`` is a link, or the path of a file in the repository.
    """

    alert: str
    title: str
    runbook: str
    label: str


def alerts(notice: Notice, about: About, page: str, now: float) -> list[dict[str, Any]]:
    """The alerts of a notice, for `POST /api/v2/alerts`."""
    found = []
    for one in notice.lasting:
        found.append(_alert(one, about, page, one.level, now + FORGOTTEN_SECONDS))
        if one.told not in ("", one.level):  # other labels are another alert
            found.append(_alert(one, about, page, one.told, now))
    for one in notice.ended:
        over = now if one.over is None else one.over
        found.append(_alert(one, about, page, one.told or one.level, over))
    return found


def _alert(one: Episode, about: About, page: str, level: str, ends: float) -> dict[str, Any]:
    labels = {"alertname": about.alert, "job": "stream-metrics", "severity": level}
    if one.subject:
        labels[about.label] = one.subject
    link = _page_link(page, about, one)
    return {
        "labels": labels,
        "annotations": {
            "summary": f"{about.title}: {one.subject}" if one.subject else about.title,
            "description": one.why,
            "dashboard_url": link,
            "runbook_url": about.runbook,
        },
        "startsAt": _time(min(one.since, ends)),
        "endsAt": _time(ends),
        "generatorURL": link,
    }


def slack(notice: Notice, about: About, page: str, now: float) -> dict[str, str]:
    """The message of a notice, for an incoming webhook."""
    lines = [*_lines(notice, about, page, now)]
    if len(lines) > NAMED:
        lines = [*lines[:NAMED], f"… and {len(lines) - NAMED} more"]
    runbook = about.runbook
    if runbook.startswith("http"):
        runbook = f"<{_escaped(runbook)}|{about.alert}>"
    return {"text": "\n".join([f"*{_escaped(about.title)}*", *lines, f"Runbook: {runbook}"])}


def _lines(notice: Notice, about: About, page: str, now: float) -> Iterator[str]:
    for one in notice.lasting:
        when = f"{one.level}, for {_duration(now - one.since)}"
        yield f"• {_subject(one, about, page)} ({when}): {_escaped(one.why)}"
    for one in notice.ended:
        over = now if one.over is None else one.over
        why = f": {_escaped(one.why)}" if one.why else ""
        yield f"• {_subject(one, about, page)} has ended after {_duration(over - one.since)}{why}"


def _subject(one: Episode, about: About, page: str) -> str:
    """Who it is about, with a link to the page."""
    link = _page_link(page, about, one)
    return f"<{_escaped(link)}|{_escaped(one.subject or 'all partitions')}>"


def _page_link(page: str, about: About, one: Episode) -> str:
    """The page, showing the agent that it is about."""
    if about.label == "instance" or not one.subject:
        return page
    return f"{page}?{urlencode({'agent': one.subject})}"


def _escaped(text: str) -> str:
    """Text without the characters that Slack takes for links and mentions."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return "".join(c if c.isprintable() else " " for c in text).replace("|", "¦")


def _duration(seconds: float) -> str:
    """A duration for people.

    >>> _duration(30), _duration(1_500), _duration(90_000)
    ('less than a minute', '25 min', '25 h')
    """
    if seconds < MINUTE:
        return "less than a minute"
    if seconds < 2 * HOUR:
        return f"{seconds / MINUTE:.0f} min"
    return f"{seconds / HOUR:.0f} h"


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
