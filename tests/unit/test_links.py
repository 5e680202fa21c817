"""Links made from templates: valid templates, and ids that stay one segment."""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from stream_metrics.live.links import CONVERSATION, check_template, fill_template
from stream_metrics.live.settings import WebSettings

TEMPLATE = "https://traces.example.org/project/{conversation_id}/view?tab=1"


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("traces/{conversation_id}", "is not an http or https link"),
        ("javascript:alert({conversation_id})", "is not an http or https link"),
        ("https:///{conversation_id}", "is not an http or https link"),
        ("https://traces.example.org/", "must contain {conversation_id} after the host"),
        ("https://{conversation_id}.example.org/", "must contain {conversation_id} after"),
        ("https://{conversation_id}/{conversation_id}", "must contain {conversation_id} after"),
        ("https://example.org/{conversation_id}/{turn}", "contains a brace outside"),
        ("https://me:secret@example.org/{conversation_id}", "contains a user name"),
        ("https://exam<ple.org/{conversation_id}", "does not name a host"),
        ("https://example.org\\x/{conversation_id}", "does not name a host"),
        ("https://example.org:99999/{conversation_id}", "out of range"),
        ("https://example.org:abc/{conversation_id}", "Port could not be cast"),
        ("https://example.org/a b/{conversation_id}", "contains a space or a control character"),
    ],
)
def test_a_template_that_makes_no_link_is_refused(template: str, why: str) -> None:
    """The message says what is wrong and does not repeat a password in it."""
    with pytest.raises(ValueError, match=re.escape(why)) as error:
        check_template(template, CONVERSATION)

    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    "host", ["traces.example.org", "traces_2:8443", "10.0.0.1", "[fe80::1]:80", "größe.example"]
)
def test_a_host_may_be_a_name_or_an_address(host: str) -> None:
    """It may have a port."""
    template = f"https://{host}/{{conversation_id}}"

    assert check_template(template, CONVERSATION) == template


@pytest.mark.parametrize("name", ["conversation_url", "runbook_url"])
def test_settings_refuse_a_template_without_the_placeholder(name: str) -> None:
    """A link that is the same for every conversation stops the worker's start."""
    with pytest.raises(ValidationError, match=name):
        WebSettings.model_validate({name: "https://example.org/"})


@pytest.mark.parametrize("conversation", [".", ".."])
def test_a_dot_segment_makes_no_link(conversation: str) -> None:
    """A browser would go to another page of that host."""
    assert fill_template(TEMPLATE, CONVERSATION, conversation) is None


@given(st.text().filter(lambda text: text not in (".", "..")))
def test_an_id_stays_one_segment_of_the_path(conversation: str) -> None:
    """For any id, host, query and the rest of the path are those of the template."""
    link = fill_template(check_template(TEMPLATE, CONVERSATION), CONVERSATION, conversation)

    assert link is not None
    parts = urlsplit(link)
    assert (parts.netloc, parts.query, parts.fragment) == ("traces.example.org", "tab=1", "")
    before, project, found, view = parts.path.split("/")
    assert (before, project, view) == ("", "project", "view")
    assert unquote(found) == conversation


def test_without_a_template_there_is_no_link() -> None:
    """The page has no empty link."""
    assert fill_template(None, CONVERSATION, "c-1") is None
