"""Check a built site: what its pages load lies beside them, and what they link to is there: check_site.py SITE."""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {"script": "src", "img": "src", "link": "href", "source": "src", "iframe": "src"}


class Page(HTMLParser):
    """The addresses in one page: those that a browser loads, and those that a reader may follow."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.followed: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Called for each element."""
        values = dict(attrs)
        if tag == "a" and values.get("href"):
            self.followed.append(str(values["href"]))
        elif tag in LOADED and values.get(LOADED[tag]) and values.get("rel") not in ("canonical", "prev", "next"):
            self.loaded.append(str(values[LOADED[tag]]))


def complaints(file: Path) -> list[str]:
    """What is wrong with the addresses of a page."""
    page = Page()
    page.feed(file.read_text())
    wrong = [f"loads {address} from elsewhere" for address in page.loaded if urlsplit(address).netloc]
    for address in page.loaded + page.followed:
        parts = urlsplit(address)
        if not parts.scheme and not parts.netloc and parts.path and not (file.parent / unquote(parts.path)).exists():
            wrong.append(f"{address} is not there")
    return wrong


def main(site: Path) -> None:
    """Check all pages."""
    pages = [page for page in sorted(site.rglob("*.html")) if page.name != "404.html"]  # its addresses are absolute
    found = [f"{page.relative_to(site)}: {wrong}" for page in pages for wrong in complaints(page)]
    if found or not pages:
        sys.exit("\n".join(found) or f"there are no pages in {site}")
    print(f"{len(pages)} pages in {site}: nothing is loaded from elsewhere, every link leads to a file")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
