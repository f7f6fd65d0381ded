#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Makes one Markdown page for each public header: descriptions from the XML that doxygen has written of it,
declarations as they stand in the header.

    scripts/api_reference.py XML_FOLDER OUTPUT_FOLDER
"""
import re
import sys
import xml.etree.ElementTree as xml
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NOISE = re.compile(r"\b(?:DCUDA_DEVICE|DCUDA_HOST_DEVICE|inline|friend) ")
# What is a name in prose: a::b, a_b, a().
NAME = re.compile(r"\b(?:\w+(?:::\w+)+|\w*[a-zA-Z]_\w+|__\w+|\w+(?=\(\)))(?:\(\))?")
links = {}  # name: page and heading, of every declaration that has one


# ---- Descriptions ----------------------------------------------------------------------------------------------------

def plain(node):
    return "".join(node.itertext()) if node is not None else ""


def escape(text):
    return re.sub(r"([\\`*_<>\[\]])", r"\\\1", text)


def prose(text):
    """Text with its names as code, and as links where they have a heading."""
    done = ""
    while found := NAME.search(text):
        name = found.group()
        known = name.rstrip("()").removeprefix("dcuda::")
        to = links.get(known) or links.get(known.rpartition("::")[0])  # fields and values are with their type
        done += escape(text[:found.start()]) + (f"[`{name}`]({to})" if to else f"`{name}`")
        text = text[found.end():]
    return done + escape(text)


def markdown(node):
    """Markdown of what is in a node of a description."""
    text = prose(node.text or "")
    for child in node:
        if child.tag == "computeroutput":
            text += f"`{plain(child)}`"
        elif child.tag in ("verbatim", "preformatted"):
            text += f"\n\n```cpp\n{plain(child).strip()}\n```\n\n"
        elif child.tag == "para":
            text += markdown(child).strip() + "\n\n"
        elif child.tag in ("ndash", "mdash"):
            text += "--" if child.tag == "ndash" else "---"  # of options, as they are written
        else:
            text += markdown(child)
        text += prose(child.tail or "")
    return text


def description(node):
    parts = [markdown(part) for part in (node.find("briefdescription"), node.find("detaileddescription"))]
    return re.sub(r"\n{3,}", "\n\n", "".join(parts)).strip()


# ---- Declarations ----------------------------------------------------------------------------------------------------

def place(node):
    location = node.find("location")
    return location.get("file"), int(location.get("line"))


def end_of_declaration(code):
    """Where its body, its members' initialisation or the next declaration begins."""
    depth = 0
    for at, char in enumerate(code):
        depth += (char in "([{") - (char in ")]}")
        is_body = char == "{" and depth == 1 and code[at - 1] == " "
        is_members = code[at:at + 3] == " : " and depth == 0
        if is_body or is_members or (char == ";" and depth == 0):
            return at
    return len(code)


def declaration(member):
    """What the header says, without its body."""
    file, line = place(member)
    lines = (ROOT / "include" / file).read_text().splitlines()
    first = line - 1
    if lines[first - 1].lstrip().startswith("template "):
        first -= 1
    indent = len(lines[first]) - len(lines[first].lstrip())
    code = "\n".join(text[indent:] for text in lines[first:])
    if member.get("kind") == "define":
        return re.sub(r" *///<.*", "", code.split("\n")[0])
    found = NOISE.sub("", code[:end_of_declaration(code)]).rstrip() + ";"
    # Below a return type that has become shorter, parameters move with it.
    head, *rest = found.split("\n")
    shift = len(code.split("\n")[0]) - len(head) if "(" in head else 0
    return "\n".join([head, *(text[shift:] if text[:shift].isspace() else text for text in rest)])


def field(member):
    value = re.sub(r"\s+", " ", plain(member.find("initializer")))
    return f"{plain(member.find('type'))} {plain(member.find('name'))} {value}".strip()


# ---- Pages -----------------------------------------------------------------------------------------------------------

def members_of(compound):
    found = [member for section in compound.findall("sectiondef") for member in section.findall("memberdef")]
    return sorted((one for one in found if one.get("prot") == "public" and description(one)), key=place)


def table(rows):
    lines = [f"| `{name}` | {' '.join(meaning.split())} |" for name, meaning in rows]
    return "\n".join(["| | |", "|---|---|", *(line.replace("||", "\\|\\|") for line in lines)]) + "\n\n"


def page_of(path):
    return Path(path).name.replace(".", "_") + ".md"


def anchor(node, within=""):
    name = plain(node.find("compoundname" if node.tag == "compounddef" else "name")).removeprefix("dcuda::")
    return (f"{within}.{name}" if within else name).replace("::", ".")


def sentence(member):
    """A description that begins with a capital letter."""
    text = description(member)
    return text[:1].upper() + text[1:] if member.get("kind") in ("variable", "typedef") else text


def show_member(member, level, within=""):
    kind, name = member.get("kind"), escape(plain(member.find("name")))
    title = f"{level} {name}{'()' if kind == 'function' else ''} {{ #{anchor(member, within)} }}\n\n"
    if kind == "enum":
        values = [(f"{plain(one.find('name'))} {plain(one.find('initializer'))}".strip(), description(one))
                  for one in member.findall("enumvalue")]
        return title + f"{description(member)}\n\n{table(values)}"
    return title + f"```cpp\n{declaration(member)}\n```\n\n{sentence(member)}\n\n"


def show_class(compound):
    name = plain(compound.find("compoundname"))
    page = f"## {escape(name.removeprefix('dcuda::'))} {{ #{anchor(compound)} }}\n\n```cpp\n{compound.get('kind')} {name};\n```\n\n"
    page += description(compound) + "\n\n"
    members = members_of(compound)
    fields = [one for one in members if one.get("kind") == "variable"]
    if fields:
        page += table((field(one), description(one)) for one in fields)
    return page + "".join(show_member(one, "###", anchor(compound)) for one in members if one not in fields)


def main():
    source, output = Path(sys.argv[1]), Path(sys.argv[2])
    output.mkdir(parents=True, exist_ok=True)
    for old in output.glob("*.md"):
        old.unlink()
    compounds = [one for file in sorted(source.glob("*.xml")) for one in xml.parse(file).getroot().findall("compounddef")]
    files = [one for one in compounds if one.get("kind") == "file"]
    classes = [one for one in compounds if one.get("kind") in ("class", "struct") and description(one)]
    loose = {one.get("id"): one for compound in compounds if compound.get("kind") in ("file", "namespace")
             for one in members_of(compound)}  # each is in its file and in its namespace
    for one in [*classes, *loose.values()]:
        links.setdefault(anchor(one).replace(".", "::"), f"{page_of(place(one)[0])}#{anchor(one)}")
    for one in classes:
        for member in members_of(one):
            if member.get("kind") != "variable":
                to = f"{page_of(place(one)[0])}#{anchor(member, anchor(one))}"
                links.setdefault(f"{anchor(one)}::{plain(member.find('name'))}", to)
    for file in files:
        path = file.find("location").get("file")
        parts = [(place(one)[1], show_class(one)) for one in classes if place(one)[0] == path]
        parts += [(place(one)[1], show_member(one, "##")) for one in loose.values() if place(one)[0] == path]
        page = f"# {escape(path)}\n\n```cpp\n#include <{path}>\n```\n\n{description(file)}\n\n"
        page += "".join(text for _, text in sorted(parts))
        (output / page_of(path)).write_text(page)


if __name__ == "__main__":
    main()
