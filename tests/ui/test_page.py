"""The files of the page: all there, nothing from elsewhere, no text that becomes markup."""

from __future__ import annotations

import re

import pytest

from weftline.ui.app import ASSETS, SHARED, asset
from weftline.ui.models import NotThere


def test_the_page_names_exactly_its_files() -> None:
    """Tests that every script and style of the page is served, and every one that is served is used."""
    pages = {name for name in ASSETS if name.endswith(".html")}
    named = {file for page in pages for file in re.findall(r'(?:src|href)="/assets/([^"]+)"', asset(page)[0])}
    assert named == {*ASSETS, *SHARED} - pages


@pytest.mark.parametrize("name", ["../app.py", "index.htm", "", "page.css/..", "report.js"])
def test_nothing_else_is_served(name: str) -> None:
    """Tests that only names in the list are files."""
    with pytest.raises(NotThere):
        asset(name)


@pytest.mark.parametrize("name", [*ASSETS, *SHARED])
def test_no_markup_from_text_and_no_network(name: str) -> None:
    """Tests that no asset turns text into markup, evaluates text, or names another host."""
    text = asset(name)[0]
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "onclick="):
        assert word not in text, word
    assert set(re.findall(r"https?://[^\s\"')]+", text)) <= {"http://www.w3.org/2000/svg"}
