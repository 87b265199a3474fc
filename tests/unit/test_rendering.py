"""Pages as text: whatever comes from outside is shown as text, and said in few words."""

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from fastapi import Request
from jinja2 import Template, UndefinedError

from batchledger.interfaces.data_docs.index import find_template
from batchledger.interfaces.markup import PAYLOAD_CHARACTERS
from batchledger.interfaces.page.rendering import _templates, show
from batchledger.model.batch import HeldRange
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.model.records.comparison import Comparison, DryRunOutcome, ReplacedRows

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
MARKUP = "<script>alert('x')</script><img src=x onerror=\"alert('x')\">&amp;"
ESCAPED = (
    "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&lt;img src=x onerror=&#34;alert(&#39;x&#39;)&#34;&gt;&amp;amp;"
)


def request_for(path: str = "/batchledger/pipelines", query: bytes = b"", root: str = "/batchledger") -> Request:
    return Request(
        {
            "type": "http",
            "method": "GET",
            "scheme": "http",
            "server": ("127.0.0.1", 80),
            "root_path": root,
            "path": path,
            "query_string": query,
            "headers": [],
        }
    )


def show_message(request: Request, **changes: Any) -> str:
    content = {"title": "Not here", "text": "nothing", "kind": "bad", "links": [], "live": False, **changes}
    return bytes(show(request, "message.html.j2", **content).body).decode()


def render(text: str, **content: Any) -> str:
    return _templates().from_string(text).render(**content)


@pytest.mark.parametrize("field", ["title", "text", "kind"])
def test_markup_in_any_text_is_shown_as_text(field: str) -> None:
    page = show_message(request_for(), **{field: MARKUP})
    assert ESCAPED in page
    assert "<img" not in page
    assert "alert('x')" not in page


def test_markup_in_the_address_is_shown_as_text() -> None:
    page = show_message(request_for('/batchledger/pipelines/"><script>', b'q="><script>'), live=True)
    assert 'hx-get="' in page
    assert '"><script>' not in page


def test_markup_would_be_alive_without_escaping() -> None:
    """Otherwise the two tests above could look for something that no template shows."""
    open_to_all = _templates().overlay(autoescape=False)
    content = {"title": MARKUP, "text": "", "kind": "bad", "links": [], "live": False}
    page = open_to_all.get_template("message.html.j2").render(root="", airflow="", address="", now=NOW, **content)
    assert MARKUP in page


@pytest.mark.parametrize("page", [_templates().get_template("layout.html.j2"), find_template("layout.html.j2")])
def test_no_template_says_that_a_text_is_markup_already(page: Template) -> None:
    templates = page.environment
    assert templates.loader is not None
    names = templates.list_templates()
    assert {"layout.html.j2", "parts.html.j2"} <= set(names)
    for name in names:
        source, _, _ = templates.loader.get_source(templates, name)
        for way_out in ("safe", "autoescape", "Markup"):
            assert way_out not in source.replace(" ", "").replace("autoescapetrue", ""), name


def test_text_that_a_template_names_and_nobody_gives_is_an_error_and_not_empty() -> None:
    with pytest.raises(UndefinedError):
        show(request_for(), "message.html.j2", title="Not here", text="nothing", kind="bad", live=False)


@pytest.mark.parametrize("root", ["/batchledger", "/behind/a/proxy/batchledger"])
def test_links_begin_where_the_requests_do(root: str) -> None:
    page = show_message(request_for(f"{root}/pipelines", root=root), links=[("/x", "go", True)])
    assert f'href="{root}/pipelines"' in page
    assert f'src="{root}/static/page.js?' in page


def test_page_that_is_alive_asks_for_itself_again() -> None:
    page = show_message(request_for(query=b"q=a&page=2"), live=True)
    assert 'hx-get="/batchledger/pipelines?q=a&amp;page=2"' in page


FOUND = "{% import 'parts.html.j2' as parts %}{% include 'dry_run_found.html.j2' %}"


def test_what_a_dry_run_into_a_topic_has_found_is_shown_as_records_once_more_and_new_ones() -> None:
    held = (ReplacedRows(HeldRange(13, OffsetRange(TopicPartition("orders", 0), 0, 7)), 0),)
    page = render(FOUND, found=DryRunOutcome(replaced=held, comparison=Comparison(added=2, repeated=7)))
    words = " ".join(re.sub("<[^>]*>", " ", page).split())
    assert words == (
        "Once more 7 records, beside those that are there: a topic replaces nothing "
        "New 2 records that were not there before"
    )


def test_what_a_dry_run_into_a_table_has_found_is_shown_as_rows_that_go_and_differ() -> None:
    held = (ReplacedRows(HeldRange(13, OffsetRange(TopicPartition("orders", 0), 0, 7)), 7),)
    page = render(FOUND, found=DryRunOutcome(replaced=held, comparison=Comparison(changed=7)))
    words = " ".join(re.sub("<[^>]*>", " ", page).split())
    assert words == (
        "Would replace 7 rows: batch 13: 7 The rows would differ: 0 added, 0 removed, 7 changed, 0 unchanged"
    )
    page = render(FOUND, found=DryRunOutcome(replaced=held, comparison=Comparison(unchanged=7, erased_again=1)))
    assert "7 unchanged; 1 row of erased keys would be erased again</dd>" in page


def test_status_of_a_page_is_the_one_that_was_given() -> None:
    content = {"title": "", "text": "", "kind": "bad", "links": [], "live": False}
    assert show(request_for(), "message.html.j2", 404, **content).status_code == 404


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "(no value)"),
        (b"", ""),
        (b'{"a": 1}', "{&#34;a&#34;: 1}"),
        (b"<b>&\x00\x1b[2J\xff\n", "&lt;b&gt;&amp;\\x00\\x1b[2J\\xff\\n"),
        ("ü\N{RIGHT-TO-LEFT OVERRIDE}".encode(), "\\xc3\\xbc\\xe2\\x80\\xae"),
    ],
)
def test_bytes_are_shown_with_nothing_hidden_in_them(value: bytes | None, text: str) -> None:
    assert render("{{ value|payload }}", value=value) == text


def test_long_bytes_are_cut_and_their_length_is_told() -> None:
    assert render("{{ value|payload }}", value=b"x" * PAYLOAD_CHARACTERS) == "x" * PAYLOAD_CHARACTERS
    told = render("{{ value|payload }}", value=b"x" * (PAYLOAD_CHARACTERS + 1))
    assert told == "x" * PAYLOAD_CHARACTERS + "… (2,001 bytes)"


@pytest.mark.parametrize(
    ("away", "text"),
    [
        (timedelta(), "now"),
        (timedelta(milliseconds=999), "now"),
        (timedelta(milliseconds=-999), "now"),
        (timedelta(seconds=1), "1 s ago"),
        (timedelta(minutes=3, seconds=59), "3 min ago"),
        (timedelta(days=400, hours=5), "400 d ago"),
        (-timedelta(seconds=5), "in 5 s"),
        (-timedelta(hours=5, minutes=59), "in 5 h"),
    ],
)
def test_moments_are_told_by_how_far_away_they_are(away: timedelta, text: str) -> None:
    assert render("{{ moment|ago(now) }}", moment=NOW - away, now=NOW) == text


@pytest.mark.parametrize(
    ("template", "value", "text"),
    [
        ("{{ value|count }}", None, ""),
        ("{{ value|count }}", 1234567, "1,234,567"),
        ("{{ value|duration }}", 0.04, "0.0 s"),
        ("{{ value|duration }}", 59.94, "59.9 s"),
        ("{{ value|duration }}", 60, "1 min"),
        ("{{ value|duration }}", 3725.9, "1 h 2 min"),
        ("{{ value|moment }}", None, ""),
        ("{{ value|moment }}", NOW.astimezone(timezone(timedelta(hours=2))), "2026-01-01 12:00:00 UTC"),
        ("{{ value|slug }}", "stuck transaction!", "stuck-transaction"),
        ("{{ value|words }}", "not_run", "not run"),
    ],
)
def test_values_are_told_in_few_words(template: str, value: object, text: str) -> None:
    assert render(template, value=value) == text
