"""MkDocs hooks of the documentation site: pages from outside ``docs``, and ``llms.txt``.

MkDocs loads this file as a hook. Pages of the repository that are not in ``docs``, such as the
README, become pages of the site, and links between them are rewritten. Links to files that are not
pages become plain text. The Markdown of each page is next to its HTML, and ``llms.txt`` lists all
pages in the order of the navigation, each with its first sentence.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]

# Path in the repository: path on the site.
PAGES_BESIDE: Final = {
    "README.md": "readme.md",
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "benchmarks/README.md": "benchmarks.md",
    "examples/README.md": "examples.md",
}
_SOURCES: Final = {target: source for source, target in PAGES_BESIDE.items()}
_CODE: Final = re.compile(r"(^```.*?^```$)", re.M | re.S)
_LINK: Final = re.compile(r"\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
_PICTURE: Final = re.compile(r'((?:src|srcset)=")([^"]+)')
_SENTENCE: Final = re.compile(r".*?[.?!](?= |$)", re.S)


def on_files(files: Any, config: Any) -> Any:
    """Add the pages from outside ``docs``."""
    from mkdocs.structure.files import File

    for source, target in PAGES_BESIDE.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, target, content=text))
    return files


def on_nav(nav: Any, config: Any, files: Any) -> Any:
    """Keep the navigation for ``llms.txt``."""
    config.extra["navigation"] = nav
    return nav


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Rewrite links to their targets on the site."""
    return rewritten(markdown, page.file.src_uri, {file.src_uri for file in files})


def on_post_build(config: Any) -> None:
    """Write each page's Markdown next to its HTML, and ``llms.txt``."""
    site, nav = Path(config.site_dir), config.extra["navigation"]
    for page in nav.pages:
        (site / page.file.src_uri).write_text(page.markdown, encoding="utf-8")
    head = f"# {config.site_name}\n\n> {config.site_description}\n"
    (site / "llms.txt").write_text("\n".join([head, *_listed(nav.items), ""]), encoding="utf-8")


def rewritten(markdown: str, page: str, known: set[str]) -> str:
    """A page's text with links relative to ``page``; ``known`` are all paths on the site."""
    source = _SOURCES.get(page, f"docs/{page}")

    def on_site(path: str) -> str | None:
        """The target of a repository link on the site; None if it is not there."""
        wanted = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        found = PAGES_BESIDE.get(wanted)
        if found is None and wanted.startswith("docs/"):
            found = wanted.removeprefix("docs/")
        if found not in known:
            return None
        return posixpath.relpath(found, posixpath.dirname(page) or ".")

    def link(match: re.Match[str]) -> str:
        text, path, anchor = match.groups()
        if "://" in path:
            return match[0]
        found = on_site(path)
        return text if found is None else f"[{text}]({found}{anchor or ''})"

    def picture(match: re.Match[str]) -> str:
        return match[1] + (on_site(match[2]) or match[2])

    parts = _CODE.split(markdown)
    for number in range(0, len(parts), 2):  # the others are blocks of code
        parts[number] = _PICTURE.sub(picture, _LINK.sub(link, parts[number]))
    return "".join(parts)


def first_sentence(markdown: str) -> str:
    """The first sentence of a page that is not in a heading, list, table or code block."""
    for paragraph in _CODE.sub("", markdown).split("\n\n"):
        text = " ".join(paragraph.split())
        if not re.match(r"$|[#|<>!]|[-*] |\d+\. ", text):
            found = _SENTENCE.match(text)
            return _LINK.sub(r"\1", found[0] if found else text)
    return ""


def _listed(items: Any) -> Iterator[str]:
    for item in items:
        if item.is_section:
            yield f"\n## {item.title}\n"
            yield from _listed(item.children)
        elif item.is_page:
            about = first_sentence(item.markdown)
            yield f"- [{item.title}]({item.file.src_uri})" + (f": {about}" if about else "")
