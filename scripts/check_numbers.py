#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Checks that the documents say what the records under benchmarks/results/ say, and writes it there.

    scripts/check_numbers.py               # fails where a document and its records differ
    scripts/check_numbers.py --write       # rewrites the documents
    scripts/check_numbers.py --rows FILE   # the rows of a record, as cells name them

Each file in benchmarks/numbers/ describes a document: the records that it quotes, and blocks of text with cells. A block
stands in the document between `<!-- numbers: NAME -->` and `<!-- numbers: end -->`, with a number in place of each cell.
benchmarks/README.md says how to add one.

A number is marked if the code that it measures has changed since the record's commit. Without the history of the
repository (no git, a shallow clone) nothing says so, and marks stay as they are.
"""
import difflib
import functools
import json
import os
import re
import shlex
import subprocess
import sys
import textwrap
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

RESULTS = "benchmarks/results"
DESCRIPTIONS = "benchmarks/numbers"
BEGIN, END = "<!-- numbers: {} -->\n\n", "\n\n<!-- numbers: end -->"
BLOCK = re.compile(BEGIN.format(r"(?!end -->)(\S+)") + "(.*?)" + END, re.DOTALL)
CELL = re.compile(r"\{([^{}]+)\}")
MARK = "†"
ALL_OLD = "The code that these figures measure has changed since."
SOME_OLD = f"{MARK} The code that this figure measures has changed since."
LINE_LENGTH = 140

# Of each row of dcuda-bench: the library in the kernel, and the benchmark itself. A source names other code by `code=`.
LIBRARY = "include/dcuda/detail"
SPARSE = {"spmv", "power_iteration"}  # case studies that share a directory

# How notes beside records say that a record is of the commit that brought it, and count GPUs.
ADDED = "commit that adds|one that (adds|brings)"
NUMBERS = {"one": "1", "two": "2", "four": "4"}

# Words of a cell that say how to read a number; all others say which row.
READING = {"record", "rival", "command", "match", "unit", "code", "commit", "machine"}


class Problem(Exception):
    """Something that a maintainer must mend; its text says where."""


def table_row(title, columns, line):
    """The cells of one line of a table of dcuda-bench. Numbers end where their title ends, words begin where it begins."""
    row, end = {}, len(line)
    for name in reversed(columns):
        if name in ("bytes", "threads", "ranks", "waiting", "value", "cores"):
            limit = title.index(f" {name}") + 1 + len(name)
            number = line[:limit].split()[-1]
            row[name] = 0 if number == "-" else float(number) if name in ("value", "cores") else int(number)
            end = limit - len(number)
        else:
            start = title.index(name)
            row[name] = line[start:end].strip()
            end = start
    return row


def rivals_of(words):
    found = re.findall(r"([^;]+?) ([\d.e+-]+) \([\d.]+x\)", words)
    return [{"name": name.strip(), "value": float(value)} for name, value in found]


def read_table(text):
    """The rows of a table that dcuda-bench printed, as its JSON has them."""
    rows, title = [], None
    for line in re.sub(r"\n {8}(?=\S)", " ", text).splitlines():  # long lines are folded
        columns = line.split()
        if columns[1:2] == ["operation"] and "value" in columns:
            title = line
            names = columns
        elif title and line.startswith("    rivals: ") and rows:
            rows[-1]["rivals"] += rivals_of(line.removeprefix("    rivals: "))
        elif not line.strip():
            title = None
        elif title:
            try:
                cells = table_row(title, names, line)
            except ValueError:  # the table ends without an empty line
                title = None
                continue
            row = {"benchmark": names[0], "path": cells[names[0]], "beside": cells.get("waiting", 0)}
            row |= {name: cells.get(name, 0) for name in ("bytes", "threads", "ranks")}
            row |= {name: cells[name] for name in ("operation", "value", "unit")}
            rows.append(row | {"rivals": rivals_of(cells.get("rivals", ""))})
    return rows


def read_json(content):
    """The rows of a JSON record. Those of `dcuda-bench apps` are runs; their value here is the time of a step in us."""
    rows = [row for row in content.get("rows", []) if "value" in row]
    for row in rows:
        if "application" in row:
            row |= {"operation": row["application"], "value": row["value"] * 1e3 / row["steps"]}
    return rows


class Record:
    """A file of benchmarks/results/: its rows, where and at which commit it was measured."""

    def __init__(self, root, name):
        self.root, self.name = root, name
        path = root / RESULTS / name
        if not path.is_file():
            raise Problem(f"there is no record {name}")
        self.text = path.read_text()
        beside = [path.parent / "README.md", root / RESULTS / "README.md"]
        self.notes = " ".join(" ".join(file.read_text() for file in beside if file.is_file()).split())
        self.commit = self.machine = None
        if path.suffix == ".json":
            content = json.loads(self.text)
            if not isinstance(content, dict):
                raise Problem(f"{name} is no record of dcuda-bench")
            self.rows = read_json(content)
            machine = content.get("machine", {})
            self.commit = machine.get("commit")
            parts = machine.get("gpus") or [machine.get("cpu")]
            self.machine = f"{len(parts)} {parts[0]}" if parts[0] else None
        else:
            self.rows = read_table(self.text)

    def place(self, position):
        """(machine, commit) of what stands at this position of a text: the last that it names before."""
        if self.commit or self.machine:
            return self.machine, self.commit
        before = self.text[:position]
        machines = re.findall(r"(\d+) (?:x )?(NVIDIA [^,\n]*?)(?:,| with)", before)
        commits = re.findall(r"\b[Cc]ommit:?\s+([0-9a-f]{7,40}|unknown|dev)\b", before)
        return " ".join(machines[-1]) if machines else None, commits[-1] if commits else None


class Cell:
    """One number: which record it is from, its value, and what says whether it is of today's code."""

    def __init__(self, records, words):
        self.words, self.row = words, {}
        self.record = records(words["record"])
        if "match" in words or "command" in words:
            position = self.search()
        else:
            position = len(self.record.text)
            self.look_up()
        self.find_place(position)
        self.find_code()
        missing = [path for path in self.code if not (self.record.root / path).exists()]
        if missing:
            raise Problem(f"the code that it measures is not in {missing[0]}: code=PATH,PATH")

    def search(self):
        """A number in the output of a program, or in a text of any kind. The pattern fits once."""
        text, begin = self.record.text, 0
        if "command" in self.words:
            command = f"$ {self.words['command']}\n"
            if text.count(command) != 1:
                raise Problem(f"{text.count(command)} commands `{self.words['command']}`, not one")
            begin = text.index(command) + len(command)
            text = text[begin:].split("\n$ ")[0]
        pattern = self.words.get("match", rf", ([\d.]+) {self.words.get('unit', 'us')} per ")
        found = list(re.finditer(pattern, text))
        if len(found) != 1:
            raise Problem(f"`{pattern}` fits {len(found)} times, not once")
        self.value = float(found[0][1])
        return begin + found[0].start()

    def look_up(self):
        chosen = {key: value for key, value in self.words.items() if key not in READING}
        chosen.setdefault("library", "")
        rows = [row for row in self.record.rows if all(str(row.get(key, "")) == value for key, value in chosen.items())]
        if len(rows) != 1:
            raise Problem(f"{len(rows)} rows fit, not one")
        self.row = rows[0]
        self.value = self.row["value"]
        if "rival" in self.words:
            values = [rival["value"] for rival in self.row.get("rivals", []) if rival["name"] == self.words["rival"]]
            if len(values) != 1:
                raise Problem(f"{len(values)} rivals have this name, not one")
            self.value = values[0]

    def find_place(self, position):
        self.machine, self.commit = self.record.place(position)
        if self.commit in ("unknown", "dev"):
            self.commit = None
        # What the record itself does not say stands in the notes beside it, and the source repeats it.
        for key in ("machine", "commit"):
            if key in self.words:
                evidence = ADDED if self.words[key] == "added" else re.escape(self.words[key])
                if not re.search(evidence, self.record.notes):
                    raise Problem(f"no README beside the record says {key} '{self.words[key]}'")
                setattr(self, key, self.words[key])
            if not getattr(self, key):
                raise Problem(f"the record has no {key}")

    def find_code(self):
        """By the row, or as the source says."""
        application, benchmark = self.row.get("application"), self.row.get("benchmark")
        if "code" in self.words:
            self.code = tuple(self.words["code"].split(","))
        elif self.words.get("library") or "rival" in self.words and not self.words["rival"].startswith("raw "):
            self.code = ("benchmarks/rivals",)
        elif application:
            folder = f"benchmarks/case_studies/{'sparse' if application in SPARSE else application}"
            self.code = (folder, LIBRARY) if self.words["model"].startswith("dcuda") else (folder,)
        elif benchmark:
            self.code = (LIBRARY, f"benchmarks/suite/{benchmark}.cu")
        else:
            raise Problem("nothing says which code it measures: code=PATH,PATH")


class History:
    """Says by git which numbers are older than the code that they measure."""

    def __init__(self, root):
        self.root = root
        self.missing = None  # why there is none
        answer = self.git("rev-parse", "--is-shallow-repository", "--show-prefix").strip()
        if answer == "true":
            self.missing = "the clone is shallow"
        elif answer != "false":  # or another one around this tree
            self.missing = "no git repository is here"

    def git(self, *arguments):
        try:
            return subprocess.run(["git", "-C", self.root, *arguments], capture_output=True, text=True).stdout
        except OSError:
            return ""

    def is_old(self, cells):
        """Whether one of the cells measures code that has changed. None is old if there is no history."""
        return not self.missing and any(self.has_changed(cell.record.name, cell.commit, cell.code) for cell in cells)

    @functools.lru_cache(maxsize=None)
    def has_changed(self, name, commit, code):
        if commit == "added":
            commit = self.git("log", "--diff-filter=A", "--format=%H", "-1", "--", f"{RESULTS}/{name}").strip()
            if not commit:
                return False  # the record is not committed yet
        if not self.git("rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}"):
            raise Problem(f"{name}: there is no commit {commit}")
        return self.git("diff", "--name-only", commit, "--", *code) != ""


def read_words(text, sources):
    """`SOURCE operation key=value ... .DIGITS` as a dictionary. The words of the source come first."""
    words, operation = {}, []
    for at, word in enumerate(shlex.split(text)):
        if at == 0 and word in sources:
            words |= sources[word]
        elif at == 0 and "/" in word:
            words["record"] = word
        elif re.fullmatch(r"\.\d", word):
            words["digits"] = word[1:]
        elif re.match(r"[a-z_]+=", word):
            key, _, value = word.partition("=")
            words[key] = value
        else:
            operation.append(word)
    if operation:
        words["operation"] = " ".join([*words.get("operation", "").split(), *operation])
    if "record" not in words:
        raise Problem("the first word is no source")
    return words


def short_name(machine):
    number, _, name = machine.partition(" ")
    return f"{NUMBERS.get(number.lower(), number)} {name.removeprefix('NVIDIA ').removesuffix(' 80GB HBM3')}"


def number_of(digits, cells):
    first, *others = (cell.value for cell in cells)
    if others and sum(others) == 0:
        raise Problem("a number is divided by 0")
    value = Decimal(repr(first / sum(others) if others else first))
    return str(value.quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP))  # as people round


class Block:
    """A text with cells, and the text that is made of it."""

    def __init__(self, name, template):
        self.name, self.template = name, template.strip("\n")

    def read_cells(self, records, sources):
        self.cells = []  # of each place in the text: digits, and a cell, or several: the first is divided by the sum of the others
        for found in CELL.finditer(self.template):
            try:
                first, *others = found[1].split(" / ")
                if len(others) > 1 or " + " in first:
                    raise Problem("a number is one of a record, or one by a sum: {a}, {a / b}, {a / b + c}")
                parts = [read_words(part, sources) for part in [first, *(others[0].split(" + ") if others else [])]]
                digits = [part.pop("digits", None) for part in parts][-1]
                self.cells.append((int(digits or 0), [Cell(records, part) for part in parts]))
            except (Problem, KeyError, ValueError) as reason:
                raise Problem(f"block {self.name}, {{{found[1]}}}: {reason}") from reason
        if not self.cells:
            raise Problem(f"block {self.name} has no cell")

    def text(self, history, directory):
        """As it stands in a document in that directory. Without history no number is marked."""
        old = [history.is_old(cells) for _, cells in self.cells]
        remark, mark = "", ""
        if all(old):
            remark = ALL_OLD
        elif any(old):
            remark, mark = SOME_OLD, MARK
        numbers = iter(number_of(*cell) + (mark if is_old else "") for cell, is_old in zip(self.cells, old))
        return CELL.sub(lambda _: next(numbers), self.template) + "\n\n" + self.records_line(directory, remark)

    def records_line(self, directory, remark):
        places = {}
        for cell in (cell for _, cells in self.cells for cell in cells):
            commit = "the commit that adds it" if cell.commit == "added" else cell.commit
            places.setdefault(cell.record.name.split("/")[0], {})[f"{short_name(cell.machine)}, {commit}"] = None
        links = [
            f"[{name}]({os.path.relpath(f'{RESULTS}/{name}', directory)}/) ({'; '.join(of_record)})"
            for name, of_record in places.items()
        ]
        line = f"{'Records' if len(links) > 1 else 'Record'}: {', '.join(links)}. {remark}".strip()
        return textwrap.fill(line, LINE_LENGTH, break_long_words=False, break_on_hyphens=False)


class Document:
    """A text of the repository, and what benchmarks/numbers/ says of it."""

    def __init__(self, root, description):
        self.name, self.sources, self.blocks = None, {}, {}
        head, *blocks = re.split(r"^=== ", description.read_text(), flags=re.MULTILINE)
        for line in head.splitlines():
            name, _, words = line.partition(" = ")
            if name == "document":
                self.name = words
            elif line.strip() and not line.startswith("#"):
                try:
                    self.sources[name] = read_words(words, self.sources)
                except Problem as reason:
                    raise Problem(f"{description.name}: {line}: {reason}") from reason
        for block in blocks:
            name, _, template = block.partition("\n")
            if name in self.blocks:
                raise Problem(f"{description.name}: block {name} stands there twice")
            self.blocks[name] = Block(name, template)
        if not self.name or not (root / self.name).is_file():
            raise Problem(f"{description.name}: there is no document {self.name}")
        self.path = root / self.name
        self.text = self.path.read_text()

    def written(self, history):
        """The document as the records have it. Without history the marks of right numbers stay."""
        directory = os.path.dirname(self.name) or "."

        def block(found):
            text = self.blocks[found[1]].text(history, directory)
            keeps = history.missing and without_marks(found[2]) == without_marks(text)
            return BEGIN.format(found[1]) + (found[2] if keeps else text) + END

        return BLOCK.sub(block, self.text)


def without_marks(text):
    # The remark may be broken into lines, and its length breaks the line before it elsewhere.
    text = re.sub(r"\s+", " ", text)
    for remark in (ALL_OLD, SOME_OLD):
        text = text.replace(f" {remark}", "")
    return text.replace(MARK, "")


def read_documents(root):
    """The documents, and what is wrong with their descriptions."""
    documents, wrong = [], []
    records = functools.lru_cache(maxsize=None)(lambda name: Record(root, name))
    for description in sorted((root / DESCRIPTIONS).glob("*.txt")):
        document = Document(root, description)
        documents.append(document)
        names = [found[1] for found in BLOCK.finditer(document.text)]
        for name in sorted(set(names) ^ set(document.blocks)):
            wrong.append(f"{document.name}: block {name} is in only one of the document and {description.name}")
        if len(names) != len(set(names)):
            wrong.append(f"{document.name}: a block stands there twice")
        for block in document.blocks.values():
            try:
                block.read_cells(records, document.sources)
            except Problem as reason:
                wrong.append(f"{description.name}: {reason}")
    described = {document.name for document in documents}
    texts = [root / "README.md", *sorted((root / "docs").rglob("*.md")), *sorted((root / "benchmarks").glob("*.md"))]
    for path in (path for path in texts if path.is_file()):
        name = path.relative_to(root).as_posix()
        text = re.sub(r"`[^`\n]*`", "", path.read_text())  # a page may explain the markers
        blocks = len(BLOCK.findall(text))
        if text.count("<!-- numbers:") != 2 * blocks or blocks and name not in described:
            wrong.append(f"{name}: a marker of numbers without its end, its empty lines or its description")
    if not documents:
        wrong.append(f"nothing is described in {DESCRIPTIONS}/")
    return documents, wrong


def difference(document, expected):
    lines = difflib.unified_diff(
        document.text.splitlines(), expected.splitlines(), document.name, f"{document.name} by its records", lineterm="", n=0
    )
    return "\n".join(lines)


def check(root):
    """Returns (errors, remarks)."""
    documents, wrong = read_documents(root)
    if wrong:
        return wrong, []
    history = History(root)
    for document in documents:
        expected = document.written(history)
        if expected != document.text:
            wrong.append(f"{difference(document, expected)}\nscripts/check_numbers.py --write writes what the records say")
    places = [cells for document in documents for block in document.blocks.values() for _, cells in block.cells]
    old = sum(history.is_old(cells) for cells in places)
    age = f"{history.missing}, so nothing says which are" if history.missing else f"{old} are marked as"
    return wrong, [f"numbers: {len(places)}, each from a record; {age} older than the code that they measure"]


def write(root):
    """Returns (errors, remarks)."""
    documents, wrong = read_documents(root)
    history = History(root)
    if history.missing:
        wrong.append(f"{history.missing}: without history nothing says which numbers need a mark")
    if wrong:
        return wrong, []
    remarks = []
    for document in documents:
        expected = document.written(history)
        if expected != document.text:
            remarks.append(difference(document, expected))
            document.path.write_text(expected)
    return [], remarks or ["numbers: nothing to write"]


def show_rows(root, name):
    for row in Record(root, name.removeprefix(f"{RESULTS}/")).rows:
        keys = ("benchmark", "application", "path", "model", "devices", "library", "bytes", "threads", "ranks", "beside")
        chosen = [f"{key}={shlex.quote(str(row[key]))}" for key in keys if row.get(key)]
        print(f"{row['operation']} {' '.join(chosen)}: {row['value']:.4g}")
        for rival in row.get("rivals", []):
            print(f"    rival={shlex.quote(rival['name'])}: {rival['value']:.4g}")


def main(arguments, root):
    if len(arguments) == 2 and arguments[0] == "--rows":
        show_rows(root, arguments[1])
        return 0
    if arguments not in ([], ["--write"]):
        print("Use: check_numbers.py [--write | --rows FILE]", file=sys.stderr)
        return 2
    try:
        errors, remarks = write(root) if arguments else check(root)
    except Problem as reason:
        errors, remarks = [str(reason)], []
    for line in remarks:
        print(line)
    for line in errors:
        print(f"error: {line}")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path(__file__).resolve().parent.parent))
