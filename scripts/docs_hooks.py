# SPDX-License-Identifier: BSD-3-Clause
"""What MkDocs calls while it builds the site (mkdocs.yml). Documents link to each other, and to sources, as files of the
repository, so that they can be read there. This adds the pages of the API reference, and a page for each file outside of
docs/ that a document links to; and it makes links of the repository links of the site."""
import os
import posixpath
import re
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parent.parent
API = ROOT / "build/docs-api/pages"
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
LANGUAGES = {".cu": "cpp", ".cuh": "cpp", ".hpp": "cpp", ".cpp": "cpp", ".h": "cpp", ".py": "python", ".sh": "sh"}
# A list right below a paragraph: on a forge it is one, for MkDocs it needs an empty line.
LIST = re.compile(r"^([^\s|#>-].*\n)(?=- |1\. )", re.MULTILINE)
PICTURES = {".png", ".svg"}
FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def repository_path(uri):
    """Of a page of the site: which file it shows. None for pages of the API reference."""
    if uri.startswith("api/") and uri != "api/index.md":
        return None
    if not uri.startswith("repository/"):
        return "docs/" + uri
    path = uri.removeprefix("repository/")
    return path if (ROOT / path).is_file() else path.removesuffix(".md")


def site_uri(path):
    """Of a file of the repository: the page that shows it, or None if none does."""
    if (ROOT / path).is_dir():
        path = posixpath.join(path, "README.md")
    suffix = Path(path).suffix
    if not (ROOT / path).is_file():
        return None
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if suffix == ".md" or suffix in PICTURES:
        return "repository/" + path
    return f"repository/{path}.md" if suffix in LANGUAGES else None


def target(path, link):
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), link))


def links_of(path):
    text = FENCED.sub("", (ROOT / path).read_text())
    return [target(path, link) for _, _, link, _ in LINK.findall(text) if "://" not in link]


def page_of(config, path):
    uri = site_uri(path)
    suffix = Path(path).suffix
    if suffix in LANGUAGES:
        listing = f'# {Path(path).name}\n\n`{path}`\n\n```{LANGUAGES[suffix]}\n--8<-- "{path}"\n```\n'
        return File.generated(config, uri, content=listing)
    return File.generated(config, uri, abs_src_path=str(ROOT / path))


def on_files(files, config):
    for page in sorted(API.glob("*.md")):
        files.append(File.generated(config, "api/" + page.name, abs_src_path=str(page)))
    # What the navigation has, and from there what is linked to.
    waiting = ["CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"]
    waiting += sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "examples").glob("*.cu"))
    waiting += [repository_path(file.src_uri) for file in files.documentation_pages()]
    seen = set()
    while waiting:
        path = waiting.pop()
        uri = site_uri(path) if path else None
        if uri is None or uri in seen:
            continue
        seen.add(uri)
        shown = repository_path(uri)
        if files.get_file_from_path(uri) is None:
            files.append(page_of(config, shown))
        if shown.endswith(".md"):
            waiting += links_of(shown)
    return files


def on_page_markdown(markdown, page, config, files):
    path = repository_path(page.file.src_uri)
    if path is None:
        return markdown

    def rewritten(found):
        mark, text, link, heading = found.groups()
        if "://" in link or not os.path.exists(ROOT / target(path, link)):
            return found.group()  # MkDocs says what is wrong
        uri = site_uri(target(path, link))
        if uri is None:
            return text
        return f"{mark}[{text}]({posixpath.relpath(uri, posixpath.dirname(page.file.src_uri))}{heading or ''})"

    parts = FENCED.split(markdown)
    for at, part in enumerate(parts):
        if not part.startswith("```"):
            parts[at] = LIST.sub(r"\1\n", LINK.sub(rewritten, part))
    return "".join(parts)
