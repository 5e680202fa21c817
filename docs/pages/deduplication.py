"""``docs/reference/deduplication.md``, from the tables and the rules of addresses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from docs.pages import page
from stream_metrics.core import unicode
from stream_metrics.core.dedup.address import (
    LABELS,
    PLACES_BY_NUMBER,
    PLACES_IN_A_PAGE,
    TRACKING_PARAMETERS,
    WEAK_PARAMETERS,
    WEAK_UNLESS_ALONE,
)
from stream_metrics.core.dedup.normalise import (
    CONTENT_PREFIX,
    IDENTICAL_TEXT,
    IDENTITY_PARAMETERS,
    LONG_TEXT,
    MAX_URL_PARAMETERS,
    SNIPPET_PREFIX,
    TITLE_PREFIX,
)
from stream_metrics.core.dedup.tables import IGNORED_FIELDS, EntityType, Need, newest


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


_PAGE: Final = f"""\
# Deduplication

This page says when two results of a turn are the same document, by the newest built-in rules
(`dedup.tables = {newest().number}`). State keeps the rules that it was built with;
[operations](../guides/operations.md#deduplication-tables) says what each number changed, and
how to go from one to the next.

A result is a *duplicate* if an earlier result of the turn is the same document: earlier in the
order of the turn's searches and their ranks, not of arrival.

1. **Candidates.** Only results of one entity type that share something are compared: an
   identifying value of `ids`, `doc_id`, host and path of `url`, the beginning of the title
   ({TITLE_PREFIX} characters), of the snippet ({SNIPPET_PREFIX}) or of the content
   ({CONTENT_PREFIX}), snippet and content from {LONG_TEXT} characters on.
2. **Comparison.** Ids decide; if they say nothing, the URL does; if it says nothing either,
   text and fields do. A value that one of the two results lacks says nothing.
3. **Contradiction.** A result does not join a document if its ids differ from those of another
   result of that document.

## Ids

- A component of `ids` that both have and that differs: different documents. (Lists are equal if
  they share a value.)
- All that both have are equal, and one of them is *identifying* for the type: the same
  document.
- Otherwise `doc_id`, if neither has an identifying component: equal is the same document,
  unequal another one, except for equal contents of {IDENTICAL_TEXT} or more characters (the
  same text indexed twice; `dedup.identical_content` turns this off).
- Ids are compared exactly. Only values of `alias`, `upn` and `email`, and UUIDs, are compared
  without regard to case.
- Ids of chunks may be unique within one document only, like "chunk_0":
  {_names(newest().local_components)}. An equal one is no evidence if the two results have another
  `doc_id` and another text; or, if not both have a `doc_id`, another URL and another content.

## URLs

A URL that cannot be parsed, has no host, or has more than {MAX_URL_PARAMETERS} parameters
counts as absent.

- `http` and `https` are one scheme. Their host is compared without regard to case, in the form
  that IDNA gives it (`bücher.example` is `xn--bcher-kva.example`), without user and without the
  port that the scheme implies. Any other scheme counts, with its host and port exactly as they
  are written: `crm://7` is not `wiki://7`.
- Paths are equal if RFC 3986 or RFC 3987 make them equal (`%7e` is `~`, `/a/../b` is `/b`, `ü`
  is `%C3%BC`), or differ in one slash at the end. A path in composed and one in decomposed
  Unicode are two.
- Of parameters, names are compared without regard to case, values exactly, and the order does
  not matter. Bytes that are not UTF-8 are compared as bytes.
- **Parameters that never count:** {_names(TRACKING_PARAMETERS)}, and names that begin with
  `utm_`.
- **Parameters that count only where the results differ in something else** (title, snippet,
  content, or a field that rejects): {_names(WEAK_PARAMETERS)}; {_names(WEAK_UNLESS_ALONE)}, if
  there are other parameters that count.
- **Parameters that identify a page:** {_names(IDENTITY_PARAMETERS)}. If both URLs have one of
  them with different values, they are different documents.
- If only other parameters differ, the text decides: the same document if it matches, another if
  it differs; if it does neither, the fields decide.
- A fragment that begins with `/` or `!` is a route of an application, and counts as a part of
  the path. Others may be a route, and count where the results differ in something else: if they
  have one of the characters `/`, `@` and `=`, begin with a word and a colon
  (`#inbox/18c1`, `#@tenant/view`, `#Instances:`), or if the scheme is not one of the web.
- Fragments that point into one page never count: plain names such as `#install`, text fragments
  (`:~:`), labels (a colon after {_names(LABELS)}), `epubcfi(...)`, and values of
  {_names(PLACES_IN_A_PAGE)} (if they begin with a digit, those of {_names(PLACES_BY_NUMBER)}).

## Texts

Titles, snippets, contents and texts in fields are compared in lower case (full Unicode case
folding), with each run of white space as one space. Canonically equivalent texts are equal,
composed or decomposed (NFC). All by Unicode {unicode.VERSION}, whichever version of Python
runs: characters that came later are their own form.

*Text* below is snippet and content together. It differs if either differs. It matches if
neither differs and one is equal with {LONG_TEXT} or more characters: a short text such as "No
preview" is no evidence. `dedup.snippet_rejects = false` lets snippets differ.

## Types of entities

Results without `entity_type` are of the type `Document`. Names of types are compared without
regard to case. Where ids and URLs say nothing, a value under "differs" that differs makes two
results different documents; otherwise one of the rules under "same" makes them the same.

| type | identifying | differs | same |
|---|---|---|---|
{{types}}

`{newest().types[-1].name}` also compares {_names(newest().types[-1].parts_differ)} first: if it
differs, they are different documents. In the last row, `dedup.ignore_fields`
({_names(IGNORED_FIELDS)}) neither reject nor confirm. `dedup.entity_types` in the
[settings](settings.md) adds types of your own, and
[Extending](../extending.md#add-an-entity-type) built-in ones.

Numbers in fields are compared by value and never equal texts; RFC 3339 times are compared as
instants; lists without regard to order.
"""


def deduplication_page() -> str:
    """The page about deduplication."""
    rows = [_row(kind) for kind in (*newest().types, newest().other)]
    return page(_PAGE.replace("{types}", "\n".join(rows)))


def _row(kind: EntityType) -> str:
    names = (
        " or ".join(f"`{name}`" for name in (kind.name, *kind.aliases)) if kind.name else "others"
    )
    if kind.definitive is None:
        identifying = f"all but {_names(kind.not_definitive)}"
    else:
        identifying = _names(kind.definitive)
    rejects = ", ".join(map(_part, kind.rejects))
    rules = "; ".join(" and ".join(map(_need, rule)) for rule in kind.confirms)
    return f"| {names} | {identifying} | {rejects} | {rules} |"


def _part(name: str) -> str:
    if name == "*":
        return "any field"
    return (
        name if name in ("text", "title", "snippet", "content") else f"`{name.removeprefix('id:')}`"
    )


def _need(need: Need) -> str:
    parts = [_part(name) for name in need.names]
    if need.count == 1:
        return " or ".join(parts) if len(parts) < 2 else f"({' or '.join(parts)})"
    if need.names == ("*",):
        return f"{need.count} fields"
    return f"{need.count} of ({', '.join(parts)})"
