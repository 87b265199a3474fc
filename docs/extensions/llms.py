"""Writes ``llms.txt`` with the site: each page by its title and its first sentence, for programs that read the site."""

import re
from collections.abc import Iterator
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx

FILE = "llms.txt"
_SENTENCE = re.compile(r".+?[.!?](?= |$)")


def write_lines(app: Sphinx) -> Iterator[str]:
    """Yield the lines, in the order of the site's contents: the parts of the front page, then the pages of each."""
    yield from (f"# {app.config.project}", "", f"> {find_sentence(app, app.config.root_doc)}")
    root = app.env.get_doctree(app.config.root_doc)
    for tree in root.findall(lambda node: node.tagname == "toctree"):
        yield from ("", f"## {tree['caption']}", "")
        for _, page in tree["entries"]:
            title = app.env.titles[page].astext()
            yield f"- [{title}]({app.builder.get_target_uri(page)}): {find_sentence(app, page)}"


def find_sentence(app: Sphinx, page: str) -> str:
    """Return the first sentence of a page."""
    paragraph = next(iter(app.env.get_doctree(page).findall(nodes.paragraph)), None)
    text = "" if paragraph is None else " ".join(paragraph.astext().split())
    found = _SENTENCE.match(text)
    return found[0] if found else text


def _write(app: Sphinx, exception: Exception | None) -> None:
    if exception is None:
        Path(app.outdir, FILE).write_text("\n".join(write_lines(app)) + "\n", encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Write the file when the site is built."""
    app.connect("build-finished", _write)
    return {"parallel_read_safe": True}
