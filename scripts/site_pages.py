"""MkDocs hooks: add pages from files outside docs/, and fix links that lead out of docs/.

README.md becomes the home page; CONTRIBUTING.md, SECURITY.md and CHANGELOG.md become pages. On GitHub, pages link to
source files and examples by relative paths. The site copies linked files below files/; a link to a directory becomes
plain text.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
}
"""Files of the repository and the names of their pages."""
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in docs/, and the files that any page links to."""
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    for source in [*(ROOT / "docs").glob("**/*.md"), *(ROOT / name for name in PAGES)]:
        for match in LINK.finditer(source.read_text(encoding="utf-8")):
            target = _target(source.parent, match[3])
            if target is None or not (ROOT / target).is_file():
                continue
            address = _address(target)
            if address.startswith("files/") and files.get_file_from_path(address) is None:
                files.append(File.generated(config, address, abs_src_path=str(ROOT / target)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite the links of a page to the addresses of their targets on the site."""
    sources = {name: source for source, name in PAGES.items()}
    folder = ROOT if page.file.src_uri in sources else (ROOT / "docs" / page.file.src_uri).parent
    here = posixpath.dirname(page.file.src_uri)

    def replace(match: re.Match[str]) -> str:
        image, text, link, anchor = match[1], match[2], match[3], match[4] or ""
        target = _target(folder, link)
        if target is None:
            return match[0]
        if (ROOT / target).is_dir():
            return text
        return f"{image}[{text}]({posixpath.relpath(_address(target), here or '.')}{anchor})"

    return LINK.sub(replace, markdown)


def _target(folder: Path, link: str) -> str | None:
    """The path in the repository that a relative link leads to; None if it is a URL or the target does not exist."""
    if "://" in link or link.startswith("mailto:"):
        return None
    target = (folder / link).resolve()
    return target.relative_to(ROOT).as_posix() if target.exists() and target.is_relative_to(ROOT) else None


def _address(target: str) -> str:
    """The site's address of a file of the repository."""
    if target in PAGES:
        return PAGES[target]
    return target.removeprefix("docs/") if target.startswith("docs/") else f"files/{target}"
