"""Rewrites links of pages for the site of mdBook, which contains docs/ only.

A link to a file or folder outside of docs/ becomes a link to GitHub. A link to docs/README.md becomes one to the
index of the site. mdBook runs this as a preprocessor: it sends its context and the book, and reads the book.
"""

import json
import posixpath
import re
import sys
from pathlib import Path

REPOSITORY = "https://github.com/weir-rs/weir"
SOURCE = "docs"
INDEX = f"{SOURCE}/README.md"
TARGET = re.compile(r"\]\(([^)\s]+)\)")


def rewritten(target, page, root):
    """The target of a link on `page`, a path in the source, for the site."""
    file, mark, anchor = target.partition("#")
    if not file or "://" in target or target.startswith("mailto:"):
        return target
    path = posixpath.normpath(posixpath.join(SOURCE, posixpath.dirname(page), file))
    if not (root / path).exists():
        raise SystemExit(f"{SOURCE}/{page}: {target} leads nowhere")
    if path == INDEX:
        return posixpath.join(posixpath.dirname(file), "index.md") + mark + anchor
    if path.startswith(f"{SOURCE}/"):
        return target
    view = "tree" if (root / path).is_dir() else "blob"
    return f"{REPOSITORY}/{view}/main/{path}{mark}{anchor}"


def with_links(content, page, root):
    """The text of a page with links for the site. Blocks of code stay as they are."""
    lines, is_code = content.split("\n"), False
    for number, line in enumerate(lines):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif not is_code:
            lines[number] = TARGET.sub(lambda link: f"]({rewritten(link[1], page, root)})", line)
    return "\n".join(lines)


def rewrite(items, root):
    """Rewrites all chapters below these items. The other items are separators and titles of parts."""
    for item in items:
        if isinstance(item, dict) and (chapter := item.get("Chapter")):
            if chapter["source_path"]:
                chapter["content"] = with_links(chapter["content"], chapter["source_path"], root)
            rewrite(chapter["sub_items"], root)


def main():
    context, book = json.load(sys.stdin.buffer)
    rewrite(book["items"], Path(context["root"]))
    json.dump(book, sys.stdout)


if __name__ == "__main__":
    main()
