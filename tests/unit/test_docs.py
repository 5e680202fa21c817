"""The claims of the documents about files, commands, settings, metrics and events are true."""

from __future__ import annotations

import ast
import json
import re
import shlex
import tomllib
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer
from prometheus_client import CollectorRegistry

from docs import site
from docs.pages.__main__ import pages
from docs.pages.prometheus import QUERIES
from docs.pages.settings import part_of_state, settings, settings_page
from docs.pages.turns import EXAMPLE, turns_page
from stream_metrics.cli.environment import variable
from stream_metrics.cli.settings import Settings
from stream_metrics.core.alerts.evidence import LEAST_ACTIVE
from stream_metrics.core.engine.cells import CODES
from stream_metrics.core.events import BadRecord, Limits, decode
from stream_metrics.core.events.record import Record
from stream_metrics.core.metrics.registry import METRICS
from stream_metrics.lab.replay.offline import Replay
from stream_metrics.live.bridge import bridge
from stream_metrics.live.page.rules import KNOWN_HOURS
from stream_metrics.live.prometheus.bridge import BridgeMetrics
from stream_metrics.live.prometheus.judge import JudgeMetrics
from stream_metrics.live.prometheus.operations import Operations
from stream_metrics.live.prometheus.receiver import ReceiverMetrics
from stream_metrics.live.worker import partition
from tests.commands import commands, leaves
from tests.exposition import exported_names

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    path
    for places in ("*.md", "docs/**/*.md", "deploy/**/*.md", "[a-z]*/README.md")
    for path in ROOT.glob(places)
)
WRITTEN_BY_COMMANDS = {
    "buckets.jsonl",
    "conversations.jsonl",
    "conversations.parquet",
    "openmetrics.txt",
    "queries.jsonl",
    "report.json",
    "parts.json",
    "run.json",
    "turns.jsonl",
    "relevant.jsonl",
    "compare.json",
    "compare.html",
    "report.html",
    "windows.json",
    "stream-metrics.cdx.json",
    "stream-metrics-engine.cdx.json",
    "THIRD-PARTY-LICENCES.txt",
    "out/conversations.jsonl",
    "out/windows.json",
    "results/bootstrap.txt",
    "results/bounds.txt",
    "results/ranked.txt",
    "NAME.jsonl",  # each of the examples
    "NAME.expected.jsonl",
    "NAME.windows.json",
}
SUFFIXES = ("py", "md", "lua", "toml", "txt", "yml", "yaml", "json", "jsonl")

_FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.M | re.S)
_INLINE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)")
_HEADING = re.compile(r"^#{1,6} +(.*?) *#*$", re.M)
_PATH = re.compile(rf"[\w.-]+(?:/[\w.-]+)*\.(?:{'|'.join(SUFFIXES)})(?::[\w.]+)?")
_PLACE = re.compile(r"([\w./-]+\.py):([\w.]+)")
_SETTING = re.compile(rf"(?:{'|'.join(Settings.model_fields)})\.[a-z_]+")
_SERIES = re.compile(r"(?<![\w:])streammetrics_\w+")
_EXTRA = re.compile(r"\bextra\s+`([a-z-]+)`|(?:'\.|\./client|stream-metrics)\[([a-z-]+)\]")
_OPTION = re.compile(r"--[a-z][a-z0-9-]*")
_OPERATORS = "();<>|&"
UsageError: Any = typer.BadParameter.__base__  # click's own, or that of the click inside typer
PLACEHOLDERS = {"PARTITION": "0", "OFFSET": "0"}  # of numbers; others are texts as they stand
FORMER_SERIES = {"streammetrics_rebuilds_total"}  # of which the changelog says what they are now
OTHER_TOOLS = {
    *("--from-literal", "--scale", "--set", "--storage"),  # kubectl, compose, helm, prometheus
    *("--price-core", "--price-memory-gib", "--price-disk-gib"),  # benchmarks.sizing
}


class Mention(NamedTuple):
    """A piece of a document that makes a claim."""

    document: Path
    text: str

    def __str__(self) -> str:
        return f"{self.document.relative_to(ROOT)}: {self.text}"


def fences(document: Path, *languages: str) -> Iterator[str]:
    """The fenced blocks of a document in one of these languages."""
    for language, block in _FENCE.findall(document.read_text(encoding="utf-8")):
        if language in languages:
            yield block


def inline(document: Path) -> Iterator[str]:
    """Inline code of a document."""
    text = _FENCE.sub("", document.read_text(encoding="utf-8"))
    yield from _INLINE.findall(text)


def code(document: Path) -> Iterator[str]:
    """Inline code, and the lines of shell blocks without comments."""
    yield from inline(document)
    for block in fences(document, "sh"):
        yield from (line.partition(" #")[0] for line in block.splitlines())


class Invocation(NamedTuple):
    """A program with its arguments; in a shell block they are ``whole``, in a sentence not all."""

    mention: Mention
    arguments: list[str]
    whole: bool


def invocations(program: str) -> list[Invocation]:
    """Where documents show how to run the program, with an argument at least."""
    shown = [
        Invocation(Mention(document, line), words[place + 1 :], whole)
        for document in DOCUMENTS
        for line, whole in _commands(document)
        if program in line
        for words in _simple(line)
        for place, word in enumerate(words)
        if word in (program, f".venv/bin/{program}")
    ]
    begins = re.compile(r"-{0,2}[a-z][a-z-]*$|[A-Z]+=")  # other words follow a name of the program
    return [one for one in shown if one.arguments and begins.match(one.arguments[0])]


def _commands(document: Path) -> Iterator[tuple[str, bool]]:
    """Lines of shell blocks, and inline code."""
    for block in fences(document, "sh", "console", "yaml"):
        lines = block.replace("\\\n", " ").splitlines()
        yield from ((line.partition(" #")[0], True) for line in lines)
    yield from ((piece, False) for piece in inline(document))


def _simple(line: str) -> Iterator[list[str]]:
    """The words of a line between operators, as a shell takes them apart."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=_OPERATORS)
    lexer.whitespace_split, lexer.commenters = True, ""
    for operator, words in groupby(lexer, key=lambda word: not word.strip(_OPERATORS)):
        if not operator:
            yield list(words)


def mentions(pattern: re.Pattern[str], whole: bool = False) -> list[Mention]:
    """Every match of ``pattern`` in code, in any document."""
    find = pattern.fullmatch if whole else pattern.search
    return [
        Mention(document, piece)
        for document in DOCUMENTS
        for piece in code(document)
        if find(piece)
    ]


def events(*documents: Path) -> list[Mention]:
    """Every example event; a block may hold several, separated by empty lines."""
    found = []
    for document in documents or DOCUMENTS:
        for block in fences(document, "json"):
            found += [Mention(document, text) for text in re.split(r"\n\n(?=\{)", block)]
        for block in fences(document, "jsonl"):
            found += [Mention(document, line) for line in block.splitlines()]
    return found


def links(document: Path) -> list[tuple[str, str]]:
    """Links inside the repository: path (empty for the page itself) and anchor."""
    text = _INLINE.sub("", _FENCE.sub("", document.read_text(encoding="utf-8")))
    return [(path, anchor) for path, anchor in _LINK.findall(text) if "://" not in path]


@lru_cache
def anchors(document: Path) -> frozenset[str]:
    """Anchors of a page's headings, as code forges and the site generate them."""
    text = _FENCE.sub("", document.read_text(encoding="utf-8"))
    found: list[str] = []
    for heading in _HEADING.findall(text):
        words = re.sub(r"\]\([^)]*\)", "]", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        repeats = sum(1 for one in found if re.fullmatch(re.escape(slug) + r"(-\d+)?", one))
        found.append(f"{slug}-{repeats}" if repeats else slug)
    return frozenset(found)


@lru_cache
def names_in(file: Path) -> frozenset[str]:
    """The dotted names of classes, functions, methods and constants in a module."""
    names: set[str] = set()

    def visit(body: Iterable[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                names.add(prefix + node.name)
                if isinstance(node, ast.ClassDef):
                    visit(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names.update(prefix + t.id for t in targets if isinstance(t, ast.Name))

    visit(ast.parse(file.read_text(encoding="utf-8")).body, "")
    return frozenset(names)


def located(path: str, document: Path) -> Path | None:
    """The file that a document refers to: relative to the root, the package or the document."""
    for base in (ROOT, ROOT / "stream_metrics", document.parent, document.parent / "peers"):
        if (base / path).exists():
            return base / path
    return None


def test_the_patterns_match_in_the_documents() -> None:
    """No test below passes because its pattern finds nothing."""
    assert len(mentions(_PLACE, whole=True)) > 30
    assert len(invocations("stream-metrics")) > 200
    assert len(mentions(_SETTING, whole=True)) > 50
    assert len(mentions(_SERIES)) > 10
    assert len(invocations("make")) > 50
    assert len(events()) > 10


def test_every_named_file_exists() -> None:
    """Paths in code and in links lead to files."""
    missing = [
        str(mention)
        for mention in mentions(_PATH, whole=True)
        if mention.text.partition(":")[0] not in WRITTEN_BY_COMMANDS
        and located(mention.text.partition(":")[0], mention.document) is None
    ]
    for document in DOCUMENTS:
        missing += [
            f"{document.relative_to(ROOT)}: {path}"
            for path, _ in links(document)
            if not (document.parent / path).exists()
        ]

    assert missing == []


def test_every_link_to_a_section_has_a_heading() -> None:
    """The part of a link after ``#`` is the anchor of a heading on the page."""
    missing = [
        f"{document.relative_to(ROOT)}: {path}#{anchor}"
        for document in DOCUMENTS
        for path, anchor in links(document)
        if anchor and anchor not in anchors((document.parent / path) if path else document)
    ]

    assert missing == []


def test_the_navigation_names_every_page_once() -> None:
    """It names nothing else."""
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    named = re.findall(r"[\w./-]+\.md", text.partition("\nnav:")[2])
    pages = [str(path.relative_to(ROOT / "docs")) for path in ROOT.glob("docs/**/*.md")]

    assert sorted(named) == sorted([*pages, *site.PAGES_BESIDE.values()])


def test_the_index_links_every_page() -> None:
    """All but runbooks, to which the reference of alerts leads."""
    index = ROOT / "docs/index.md"
    linked = {(index.parent / path).resolve() for path, _ in links(index)}
    missing = [
        str(page.relative_to(ROOT))
        for page in ROOT.glob("docs/**/*.md")
        if page != index and page.parent.name != "runbooks" and page not in linked
    ]

    assert missing == []


def test_links_lead_to_the_same_pages_on_the_site() -> None:
    """Pages outside ``docs`` are elsewhere there; other files are named without a link."""
    known = {"readme.md", "guides/alerts.md", "runbooks/SRRSpike.md"}

    assert (
        site.rewritten("[a](../../README.md#b)", "guides/alerts.md", known) == "[a](../readme.md#b)"
    )
    assert (
        site.rewritten("[a](docs/guides/alerts.md)", "readme.md", known) == "[a](guides/alerts.md)"
    )
    assert site.rewritten("[a](../LICENSE) [b](#b)", "guides/alerts.md", known) == "a [b](#b)"
    assert site.rewritten("```\n[a](LICENSE)\n```\n", "readme.md", known).count("](") == 1


def test_the_summary_of_a_page_is_its_first_sentence() -> None:
    """Headings, code and lists are skipped, and a link gives its text."""
    page = "# Limits\n\n```sh\nls.\n```\n\n1. One.\n\nNot more\nthan [ten](x.md). Or so.\n"

    assert site.first_sentence(page) == "Not more than ten."


def test_every_named_function_exists() -> None:
    """``file.py:name`` names a class, function, method or constant of that file."""
    missing = []
    for mention in mentions(_PLACE, whole=True):
        path, _, name = mention.text.partition(":")
        file = located(path, mention.document)
        if file is None or name not in names_in(file):
            missing.append(str(mention))

    assert missing == []


@pytest.mark.parametrize("event", events(), ids=lambda e: f"{e.document.name}-{e.text[:60]}")
def test_every_example_event_is_valid(event: Mention) -> None:
    """An example event decodes, with its conversation as the key."""
    key = json.loads(event.text)["conversation_id"].encode()

    decoded = decode(event.text.encode(), key=key, limits=Limits(), require_key=True)

    assert not isinstance(decoded, BadRecord), decoded


def rows_of(document: Path, *without: str) -> dict[str, dict[str, Any]]:
    """The rows of a document's events by conversation, without events of some ids."""
    replay = Replay()
    for event in events(document):
        if json.loads(event.text)["event_id"] not in without:
            replay.feed(Record(event.text.encode()))
    return {row["conversation_id"]: row for row in replay.rows()}


def test_the_figures_of_the_readme_are_those_of_its_events() -> None:
    """They are two searches and a label."""
    row = rows_of(ROOT / "README.md")["c-1"]

    assert (row["srr"], row["sre"], row["sre_upper"]) == (0.25, 0.25, 0.25)
    assert row["duplicates_of"] == {"r-3": "r-1"}


def test_the_first_events_are_those_of_the_readme() -> None:
    """``examples/first-events.jsonl`` holds the events of the README, in the same order."""
    lines = (ROOT / "examples" / "first-events.jsonl").read_text(encoding="utf-8").splitlines()
    shown = [json.loads(event.text) for event in events(ROOT / "README.md")]

    assert len(shown) == 3
    assert [json.loads(line) for line in lines] == shown


def test_the_corrected_label_gives_the_figure_of_the_readme() -> None:
    """``examples/corrected-label.json`` raises the SRE of the first events to 50%."""
    examples, replay = ROOT / "examples", Replay()
    for line in (examples / "first-events.jsonl").read_bytes().splitlines():
        replay.feed(Record(line))
    replay.feed(Record((examples / "corrected-label.json").read_bytes()))
    (row,) = replay.rows()

    assert row["sre"] == 0.5


def test_everything_says_the_same_about_when_it_is_known_what_is_usual() -> None:
    """The rules need half an hour that is an hour old, for the ratio and then for its variance."""
    places = [*DOCUMENTS, ROOT / "deploy/local/stack.py"]
    texts = [path.read_text(encoding="utf-8").replace('"', " ") for path in places]
    said = re.findall(r"(\S+)\s+hours?\s+of\s+(?:its\s+)?traffic", "\n".join(texts))

    assert 2 * (60 + LEAST_ACTIVE) == 3 * 60 == KNOWN_HOURS * 60
    assert len(said) > 2
    assert {*said} == {"three"}


def test_the_readme_fits_into_160_lines() -> None:
    """Longer explanations belong on other pages."""
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 160


def test_the_page_of_commands_has_every_command() -> None:
    """``docs/reference/cli.md`` has exactly one row per command."""
    page = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `stream-metrics ([a-z -]+)` \|", page, re.M)

    assert sorted(rows) == sorted(leaves())


def test_the_figures_for_producers_are_those_of_the_events() -> None:
    """Chunks are two documents, events of an iteration merge, and a withdrawn label is gone."""
    rows = rows_of(ROOT / "docs" / "guides" / "producers.md")

    assert (rows["c-7"]["unique"], rows["c-7"]["duplicates"]) == (2, 0)
    assert (rows["c-8"]["n"], rows["c-8"]["results"], rows["c-8"]["labelled"]) == (1, 1, 0)
    assert rows["c-8"]["gate"]["correct_search"] == 1
    assert {"search": 1, "skip": 1}.items() <= rows["c-9"]["gate"].items()
    assert rows["c-9"]["all_good_basis"] == "qrels"


def test_the_latest_label_counts_in_any_order_of_arrival() -> None:
    """Of the three labels on the page for producers, the one given last counts."""
    assert rows_of(ROOT / "docs" / "guides" / "producers.md", "l-4")["c-8"]["gain"] == 4


def test_every_shown_command_can_be_run_as_written() -> None:
    """Click accepts ``stream-metrics <command> …``; in a sentence, arguments may be missing."""
    known = commands()
    wrong = []
    for mention, arguments, whole in invocations("stream-metrics"):
        name, rest = "", list(arguments)
        while rest and f"{name} {rest[0]}".strip() in known:
            name = f"{name} {rest.pop(0)}".strip()
        if rest and not name and rest[0] in ("--help", "--version"):
            continue
        if not name:
            wrong.append(f"{mention}: no such command")
            continue
        try:
            known[name].make_context(name, [PLACEHOLDERS.get(each, each) for each in rest])
        except typer.Exit:  # of --help
            pass
        except UsageError as error:
            if whole or type(error).__name__ not in ("MissingParameter", "BadOptionUsage"):
                wrong.append(f"{mention}: {error.format_message()}")

    assert wrong == []


def test_every_named_option_exists() -> None:
    """An option alone in a sentence is that of a command."""
    parameters = [each for command in commands().values() for each in command.params]
    known = {"--help", *OTHER_TOOLS}.union(
        *(each.opts + each.secondary_opts for each in parameters)
    )
    named = {
        option[0]
        for document in DOCUMENTS
        if not {"evidence", "benchmarks", "CHANGELOG.md"} & {*document.parts}
        for piece in inline(document)
        if (option := _OPTION.match(piece))
    }

    assert set() == named - known


def test_every_named_make_target_exists() -> None:
    """``make target VARIABLE=…`` names targets and variables of the Makefile."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    known = {
        *re.findall(r"^([a-z][a-z-]*):", makefile, re.M),
        *re.findall(r"\$\(([A-Z_]+)\)", makefile),
    }
    wrong = [
        str(mention)
        for mention, arguments, _ in invocations("make")
        if not {word.partition("=")[0] for word in arguments} <= known
    ]

    assert wrong == []


def test_every_module_that_python_runs_exists() -> None:
    """``python -m`` is followed by a module of this repository, or one that comes with Python."""
    missing = []
    for mention, arguments, _ in invocations("python"):
        if arguments[0] == "-m" and arguments[1] not in ("pip", "pytest", "venv"):
            place = ROOT / arguments[1].replace(".", "/")
            if not (place.with_suffix(".py").exists() or (place / "__main__.py").exists()):
                missing.append(str(mention))

    assert missing == []


def test_every_named_extra_exists() -> None:
    """Extras that are named, alone or in brackets, are those of the package or of the client."""
    projects = [ROOT / "pyproject.toml", ROOT / "client" / "pyproject.toml"]
    known = {
        extra
        for project in projects
        for extra in tomllib.loads(project.read_text("utf-8"))["project"]["optional-dependencies"]
    }
    texts = [document.read_text(encoding="utf-8") for document in DOCUMENTS]
    named = {one for text in texts for pair in _EXTRA.findall(text) for one in pair if one}

    assert len(named) > 5
    assert set() == named - known


def test_every_named_setting_exists() -> None:
    """Dotted names and environment variables in the documents are settings."""
    known = {name for name, _ in settings()}
    variables = {variable(name) for name in known}
    variables |= {"STREAM_METRICS_CONFIG", "STREAM_METRICS_KERNEL", "STREAM_METRICS_BUILD"}
    texts = [document.read_text(encoding="utf-8") for document in DOCUMENTS]
    named = {m.text for m in mentions(_SETTING, whole=True) if not _PATH.fullmatch(m.text)}

    assert set() == named - known
    assert set() == {v for t in texts for v in re.findall(r"STREAM_METRICS_[A-Z_]+", t)} - variables


def test_every_settings_file_in_the_documents_is_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker accepts each TOML block."""
    monkeypatch.delenv("STREAM_METRICS_CONFIG", raising=False)
    blocks = [block for document in DOCUMENTS for block in fences(document, "toml")]

    assert blocks
    for block in blocks:
        Settings.model_validate(tomllib.loads(block))


def test_every_named_metric_is_exported() -> None:
    """Names that begin with ``streammetrics_`` are on ``/metrics``."""
    registry = CollectorRegistry()
    operations = Operations(registry, ["search-iterations"], pools={"support": "handbook"})
    operations.lag("search-iterations", 0, 0, 0.0)
    operations.agents_known(["support"])
    BridgeMetrics(registry, ["traces"]).lag("traces", 0, 0, 0.0)
    ReceiverMetrics(registry, ["events"]).answered("/v1/events", 200)
    JudgeMetrics(registry, ["searches"]).lag("searches", 0, 0, 0.0)
    known = exported_names(registry)
    texts = [document.read_text(encoding="utf-8") for document in DOCUMENTS]
    named = {name for text in texts for name in _SERIES.findall(text)} - {"streammetrics_window_"}

    assert set() == named - known - FORMER_SERIES


def test_the_page_of_the_bridge_has_the_steps_of_the_code() -> None:
    """Code and page list the order of effects alike."""
    steps = re.findall(r"^\d\. (\w+) ", bridge.__doc__ or "", re.M)
    text = (ROOT / "docs" / "concepts" / "bridge.md").read_text(encoding="utf-8")

    assert steps
    assert (
        steps == [row.split()[0] for row in re.findall(r"^\| (\w+(?: \w+)?) \| \w", text, re.M)][1:]
    )


def test_the_page_on_delivery_has_the_steps_of_the_worker() -> None:
    """Code and page number the effects alike."""
    steps = re.findall(r"^(\d)\. (\w+) ", partition.__doc__ or "", re.M)
    text = (ROOT / "docs" / "concepts" / "delivery.md").read_text(encoding="utf-8")

    assert steps
    assert steps == re.findall(r"^\| (\d) \| (\w+) \|", text, re.M)
    assert steps == re.findall(r"^\| (\d) (\w+) \|", text, re.M)


@pytest.mark.parametrize("name", pages())
def test_generated_pages_are_current(name: str) -> None:
    """``make docs`` would not change them."""
    assert pages()[name] == (ROOT / "docs" / "reference" / name).read_text(encoding="utf-8"), (
        "run: make docs"
    )


def test_every_setting_is_explained_once() -> None:
    """Each setting has one explanation."""
    assert [name for name, field in settings() if not field.description] == []


CHANGED: dict[str, dict[str, Any]] = {
    "state.ttl": {"state": {"ttl": "48h"}},
    "state.digest_key": {"state": {"digest_key": "other"}},
    "dedup.max_candidates": {"dedup": {"max_candidates": 8}},
    "limits.url_bytes": {"limits": {"url_bytes": 100}},
    "metrics.good_gain": {"metrics": {"good_gain": 3}},
    "metrics.agents": {"metrics": {"agents": ("a",)}},
    "metrics.retrieval": {"metrics": {"retrieval": ("mrr",)}},
    "metrics.series_windows": {"metrics": {"series_windows": {"turns": ["30m"]}}},
    "metrics.turn_scope": {"metrics": {"turn_scope": "all"}},
    "state.cache_results": {"state": {"cache_results": 1}},
    "metrics.pools": {"metrics": {"pools": {"a": "index"}}},
    "kafka.value_format": {"kafka": {"value_format": "cloudevents"}},
    "kafka.group_id": {"kafka": {"group_id": "other"}},
    "web.port": {"web": {"port": 1}},
}


def test_settings_are_explained_in_sentences() -> None:
    """An explanation begins with a capital and ends with one full stop."""
    rows = re.findall(r"^\| `[a-z_.]+`.* \| ([^|]*) \|$", settings_page(), re.M)

    assert len(rows) == len(list(settings()))
    assert [row for row in rows if not re.fullmatch(r"[A-Z`].*[^.;]\.", row) or ".;" in row] == []


@pytest.mark.parametrize("name", CHANGED)
def test_settings_that_are_part_of_the_state_are_marked(name: str) -> None:
    """A setting has the mark exactly if changing it changes the fingerprint."""
    changes = (
        Settings.model_validate(CHANGED[name]).fingerprint()
        != Settings.model_validate({}).fingerprint()
    )

    assert changes == part_of_state(name)


def test_the_page_gives_the_names_of_metrics_in_rows() -> None:
    """A row has every metric of the registry under that name."""
    row = rows_of(ROOT / "README.md")["c-1"]
    for metric in METRICS:
        place: Any = row
        for part in metric.path.split("."):
            assert part.removesuffix("[]") in place
            place = place[part.removesuffix("[]")]
            place = place[0] if part.endswith("[]") else place


def test_the_page_gives_the_exported_names_of_turn_metrics() -> None:
    """They are the values of the label ``metric`` of a turn's sums."""
    replay = Replay()
    for event in events():
        replay.feed(Record(event.text.encode()))
    sums = replay.windows()["sums"]
    exported = {entry["metric"] for entry in sums if entry["name"] == "turn_metric_count"}
    named = set(re.findall(r'`metric="(\w+)"`', turns_page()))

    assert exported
    assert exported == named


def test_queries_in_the_documents_use_existing_series() -> None:
    """Each PromQL query uses names, labels and windows of the table of series."""
    by_name = {series.name: series for series in CODES.values()}
    for _, query in QUERIES:
        found = re.findall(r"streammetrics_window_(\w+)\{([^}]*)\}", query)
        assert found
        for name, labels in found:
            asked = dict(re.findall(r'(\w+)=~?"([^"]*)"', labels))
            window = asked.pop("window")
            series = by_name[name]
            assert asked.keys() <= set(series.labels)
            assert window in (series.windows or Settings.model_validate({}).metrics.windows)


def test_the_guide_explains_each_gauge_that_its_queries_use() -> None:
    """Each window gauge in the queries of the Prometheus guide is in its table of gauges."""
    guide = (ROOT / "docs/guides/prometheus.md").read_text(encoding="utf-8")
    explained = set(re.findall(r"^\| `(streammetrics_window_\w+)` \|", guide, re.M))
    used = {
        name
        for block in fences(ROOT / "docs/guides/prometheus.md", "promql")
        for name in re.findall(r"streammetrics_window_\w+", block)
    }

    assert used
    assert used <= explained


def test_the_worked_example_is_the_specified_one() -> None:
    """Three iterations give CG 11, SRE 0.5 and SRR 0.375."""
    text = turns_page()

    assert len(EXAMPLE) == 3
    assert "| CG | 5 | 9 | 11 |" in text
    assert "| DRAG | 2.5 | 1.6706 | 1.2249 |" in text
    assert "| SRE | 1 | 0.6 | 0.5 |" in text
    assert "| SRR | 0 | 0.2 | 0.375 |" in text
