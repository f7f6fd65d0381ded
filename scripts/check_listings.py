#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Checks that what the documents quote is what is built: a code block below `<!-- from: FILE -->` must stand in that
file, word for word. All C++ code of the tutorial is quoted so.

    scripts/check_listings.py
"""
import re
import sys
from pathlib import Path

BLOCK = re.compile(r"<!-- from: (\S+) -->\n```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def main():
    root = Path(__file__).resolve().parent.parent
    found, wrong = 0, []
    for document in [root / "README.md", *sorted((root / "docs").rglob("*.md"))]:
        text = document.read_text()
        blocks = BLOCK.findall(text)
        found += len(blocks)
        if len(blocks) != text.count("<!-- from:"):
            wrong.append(f"{document.relative_to(root)}: a `<!-- from: FILE -->` without a code block below it")
        if "tutorial" in document.parts and len(blocks) != text.count("```cpp"):
            wrong.append(f"{document.relative_to(root)}: C++ code that is not quoted from a file")
        for name, code in blocks:
            if not (root / name).is_file() or code not in (root / name).read_text():
                wrong.append(f"{document.relative_to(root)}: this is not in {name}:\n{code}")
    if not found:
        wrong.append("no document quotes a file")
    print("\n".join(wrong) or f"{found} listings are as in their files")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
