"""The vocabulary of a fictitious company: people, sites, topics and sentences.

Sentences take ``{t}`` (the topic), ``{p}`` (a person), ``{s}`` (a site), ``{n}`` (a number) and
``{d}`` (a date).
"""

from __future__ import annotations

from dataclasses import dataclass

DOMAIN = "brightharbor.example"

FIRST_NAMES = (
    "Aisha", "Bram", "Chiara", "Dmitri", "Eszter", "Farid", "Greta", "Hugo", "Ines", "Jonas",
    "Keiko", "Łukasz", "Marta", "Nils", "Oyelaran", "Priya", "Quentin", "Rosa", "Sven", "Tuva",
)  # fmt: skip
LAST_NAMES = (
    "Abebe", "Björk", "Castellano", "Dvořák", "Eriksen", "Fontaine", "Grünwald", "Haddad",
    "Ivanova", "Jansen", "Kowalczyk", "Lindqvist", "Moreau", "Nakamura", "Okafor", "Petrov",
    "Quispe", "Rossi", "Sørensen", "Tanaka", "Ueda", "Vogel", "Wójcik", "Yilmaz",
)  # fmt: skip
SITES = (
    "Rotterdam", "Gdańsk", "Bilbao", "Malmö", "Trieste", "Antwerp", "Valparaíso", "Osaka",
    "Halifax", "Bremen",
)  # fmt: skip
DEPARTMENTS = (
    "Terminal Operations", "Finance", "People & Culture", "Digital Workplace", "Chartering",
    "Customer Care", "Procurement", "Safety", "Legal",
)  # fmt: skip

ASPECTS = (
    "step by step", "known problems", "who approves what", "checklist", "for new starters",
    "exceptions", "changes this quarter", "questions and answers", "roles and duties",
    "first aid", "overview", "deadlines", "for managers", "limits", "contacts", "how we measure",
    "lessons from last year", "set-up", "templates", "escalation",
)  # fmt: skip
ANSWER = "{p} looks after {t}; the sources above say how it is done."
REFERENCES = (
    "{p} looks after {t}, the sources above say how it is done",
    "{p} looks after {t}.",
    "Ask {p} about {t}; the portal says how it is done.",
    "{o} looks after {t} since last year, before that it was {p}.",
    "Each team does {t} itself.",
)
"""Reference answers: the answer in another spelling, shorter, longer, or different.

``{o}`` is another person.
"""
NOUNS = ("guide", "plan", "minutes", "budget", "handover", "report", "slides", "form", "register")
MEETINGS = ("weekly", "stand-up", "review", "kick-off", "clinic", "planning", "retrospective")
SYMPTOMS = (
    "does not open", "is very slow", "shows an old version", "asks for a login each time",
    "missing for two colleagues", "stopped after the update", "wrong for part-timers",
    "cannot be submitted", "sends duplicate notices", "fails on the tablet",
)  # fmt: skip

SENTENCES = (
    "The {s} team uses {t} since {d}, and {n} colleagues have asked about it so far.",
    "If {t} does not work as described, write to {p} before {d}.",
    "{p} keeps the current version for {s}; older copies were withdrawn on {d}.",
    "From {d} on, requests about {t} need one approval instead of two.",
    "About {n} cases a month concern {t}, most of them from {s}.",
    "In {s} the rule differs: {p} signs first, then the form goes to the shared inbox.",
    "The deadline moved to {d} because {n} entries were still open.",
    "Please check {t} against the list that {p} sent round on {d}.",
    "Step {n}: open the portal, pick {s}, and confirm that the details are yours.",
    "What changed: {t} is now handled in {s}, and {p} answers questions.",
    "We agreed that {p} collects the open points on {t} until {d}.",
    "Nobody in {s} could reproduce it after {d}; reference {n} stays open.",
    "The figures for {t} include {s} only, {n} lines in all.",
    "Ask {p} for access, it takes {n} hours at most on working days.",
    "Reminder: {t} is reviewed every quarter, next on {d}.",
    "Item {n} of the audit was about {t} in {s}, and it is closed.",
)


@dataclass(frozen=True, slots=True)
class AgentKind:
    """A kind of agent: its topics and sources.

    ``sources`` maps a route to its share of the agent's documents; ``gate_scores`` says whether
    the agent's gate decides explicitly, ``unix_times`` whether it writes times as numbers.
    """

    prefix: str
    release: str
    topics: tuple[str, ...]
    sources: tuple[tuple[str, int], ...]
    gate_scores: bool = True
    unix_times: bool = False


IT_DESK = AgentKind(
    "itd", "2025.3.1",
    (
        "VPN access", "password reset", "label printers", "meeting-room screens", "mailbox quota",
        "single sign-on", "crane tablets", "guest Wi-Fi", "laptop replacement", "disk encryption",
        "software requests", "two-factor app", "shared calendars", "badge readers", "backup copies",
        "remote desktop", "phone contracts", "spam reports", "file-share permissions",
        "browser certificates", "docking stations", "barcode scanners", "admin rights",
        "patch days",
    ),
    (("knowledge", 34), ("tickets", 30), ("files", 16), ("chats", 14), ("people", 6)),
)  # fmt: skip

HR_HELPER = AgentKind(
    "hrh", "2025.2.4",
    (
        "parental leave", "holiday carry-over", "shift swaps", "travel allowance", "bike leasing",
        "onboarding", "sick notes", "pension plan", "language courses", "job rotation",
        "working from abroad", "performance talks", "referral bonus", "overtime", "apprenticeships",
        "relocation help", "child care", "part-time requests", "exit interviews", "training budget",
    ),
    (("knowledge", 40), ("files", 22), ("mail", 14), ("calendar", 12), ("people", 12)),
    gate_scores=False,
)  # fmt: skip

SALES_ASSIST = AgentKind(
    "sal", "2025.3.0",
    (
        "reefer contracts", "berth pricing", "discount ladder", "tender for Baltic lines",
        "customer onboarding", "quarterly forecast", "storage surcharges", "loyalty scheme",
        "trade fair", "service credits", "rail shuttle offer", "contract renewals", "lead routing",
        "price list", "references", "complaint handling", "payment terms", "pilot customers",
    ),
    (("mail", 26), ("connectors", 24), ("calendar", 16), ("chats", 18), ("transcripts", 16)),
    unix_times=True,
)  # fmt: skip

FINANCE_BOT = AgentKind(
    "fin", "2025.1.9",
    (
        "month-end close", "cost centres", "expense claims", "fuel invoices", "VAT returns",
        "purchase orders", "credit notes", "bank reconciliation", "asset register", "travel cards",
        "supplier onboarding", "customs duties", "intercompany loans", "dunning runs",
        "budget transfers", "petty cash", "year-end audit", "exchange rates",
    ),
    (("files", 38), ("tickets", 18), ("knowledge", 18), ("mail", 16), ("connectors", 10)),
)  # fmt: skip

FLAVOURS = (IT_DESK, HR_HELPER, SALES_ASSIST, FINANCE_BOT)
NAMED = dict(zip(("it-desk", "hr-helper", "sales-assist", "finance-bot"), FLAVOURS, strict=True))


def agent_kind(agent: str, index: int) -> AgentKind:
    """The kind of an agent by name, or by its index in the profile for unknown names."""
    return NAMED.get(agent, FLAVOURS[index % len(FLAVOURS)])
