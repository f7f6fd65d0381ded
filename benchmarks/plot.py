#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Draws the results of dcuda-bench: latency, bandwidth, barriers, overlap, waiting ranks, messages beside MPI,
applications. Needs matplotlib.

    plot.py --output DIRECTORY RECORD.json...     several records: rows of the later ones replace equal earlier ones
    plot.py --check                               whether this can draw here
"""
import argparse
import json
import sys
from collections import Counter
from pathlib import Path

# Whose a bar or a curve is: its colour, the same in all pictures of all records. Bars stand in this order. None is red or
# green, which many people cannot tell apart.
COLORS = {
    "dcuda": "#0072B2",
    "plain": "#8C8C8C",  # CUDA alone
    "plain-graph": "#4D4D4D",
    "host": "#56B4E9",
    "stream": "#1FA79F",
    "stream-graph": "#0E5E5A",
    "fused": "#B8A000",
    "fused-graph": "#6B5D00",
    "mpi": "#CC79A7",
    "nccl": "#E69F00",
    "nccl-graph": "#8F6200",
    "nvshmem": "#5E3C99",
    "another": "#D9D9D9",
}
OWNERS = list(COLORS)
CUDA_ALONE = ("raw ", "copy engine", "grid.sync")  # how names of rivals begin that need no library
# A model with options has its model's colour and a pattern.
PATTERNS = {"--fused": "..", "--stores": "xx", "--message": "--", "--no-barrier": "oo"}
ANOTHER_PATTERN = "++"
EXCHANGES_PATTERN = "///"
# Several curves of dCUDA in one picture have shades of its colour, in an order that the picture fixes; several of another
# owner have its one colour.
SHADES = (COLORS["dcuda"], "#08306B", "#74A9CF", "#3A4FC4", "#A6BDDB")
MARKERS = "osD^v"
RIVAL_MARKERS = "xP*X+"
PATHS = ("same device", "all devices", "peer", "remote")
WORK = ("copy", "newton")
WORK_IN_WORDS = {"copy": "copy: stays in the L2 cache", "stream": "stream: copies device memory",
                 "newton": "newton: one chain of arithmetic", "fma": "fma: eight chains of arithmetic"}
PARTS = ("work only", "exchange only", "both", "both by hand")


def owner(name):
    """Of a model with its options, or of a rival."""
    words = name.lower().split()
    if name.startswith(CUDA_ALONE):
        return "plain"
    if words[:1] == ["nccl"] and words[-1] == "graph":
        return "nccl-graph"
    return words[0] if words and words[0] in COLORS else "another"


def order(name):
    """Where the bar of this name stands among others, whatever else is in the record."""
    return OWNERS.index(owner(name)), name


def color(name):
    return COLORS[owner(name)]


def pattern(model):
    """What tells the options of a model."""
    options = [word.split("=")[0] for word in model.split() if word.startswith("--")]
    return "".join(PATTERNS.get(option, ANOTHER_PATTERN) for option in options)


def dcuda_first(label):
    """Where a curve stands in the legend. Those of dCUDA are called after what they show."""
    return -1 if owner(label) == "another" else OWNERS.index(owner(label))


def place_in(known, name):
    return known.index(name) if name in known else len(known)


def load_matplotlib():
    try:
        import matplotlib
    except ImportError:
        sys.exit("plot.py: needs matplotlib: apt-get install python3-matplotlib, or python3 -m pip install matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plots

    return plots


def read(files):
    """All measured rows of the records, by what was measured."""
    rows = {}
    for file in files:
        try:
            record = json.loads(Path(file).read_text())
            measured = [row for row in record["rows"] if "value" in row]
        except (OSError, ValueError, KeyError, TypeError) as problem:
            sys.exit(f"plot.py: {file} is no record of dcuda-bench: {problem!r}")
        for row in measured:
            row["multiprocessors"] = record.get("machine", {}).get("multiprocessors")
            row["machine"] = machine_in_words(record.get("machine", {}))
            if "application" in row:
                key = [row[name] for name in ("application", "model", "devices")]
            else:
                key = [row[name] for name in ("benchmark", "path", "operation", "bytes", "threads", "ranks", "beside")]
            rows[tuple(key) + (row.get("library", ""),)] = row
    return list(rows.values())


def machine_in_words(machine):
    gpus = machine.get("gpus")
    if gpus:
        return f"{len(gpus)} x {gpus[0]}"
    return f"{machine.get('cpu', 'a machine')} ({machine.get('backend')} backend)"


def in_bytes(size):
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def whiskers(rows):
    """How far the interval reaches below and above each value."""
    return [[max(0, row["value"] - row["low"]) for row in rows], [max(0, row["high"] - row["value"]) for row in rows]]


def curve(axes, rows, key, label, place, rivals=True):
    """dCUDA's and those of its rivals. `place`: which of dCUDA's curves in this picture it is."""
    rows = sorted(rows, key=lambda row: row[key])
    axes.errorbar([row[key] for row in rows], [row["value"] for row in rows], yerr=whiskers(rows),
                  marker=MARKERS[place % len(MARKERS)], capsize=3, label=label, color=SHADES[place % len(SHADES)])
    of_owner = Counter()
    for name in other_names(rows) if rivals else []:
        marker = RIVAL_MARKERS[of_owner[owner(name)] % len(RIVAL_MARKERS)]
        of_owner[owner(name)] += 1
        points = [(row[key], rival["value"]) for row in rows for rival in row.get("rivals", [])
                  if rival["name"] == name]
        axes.plot(*zip(*points), marker=marker, linestyle="--", color=color(name), label=f"{name} ({label})")


def finish(axes, title, x, y, legend=True, legend_order=dcuda_first):
    """The legend stands beside the axes, where it hides nothing."""
    axes.set_title(title)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(alpha=0.3)
    handles, labels = axes.get_legend_handles_labels()
    if legend and handles:
        once = dict(zip(labels, handles))
        names = sorted(once, key=legend_order)
        axes.legend([once[name] for name in names], names, fontsize="small", loc="upper left",
                    bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0)


def pick(rows, **wanted):
    return [row for row in rows if not row.get("library") and all(row[name] == value for name, value in wanted.items())]


def values(rows, name):
    """All that there are, "same device" before other paths."""
    return sorted({row[name] for row in rows}, key=lambda value: (value != "same device", value))


def other_names(rows):
    return sorted({rival["name"] for row in rows for rival in row.get("rivals", [])}, key=order)


def draw_latency(figure, rows):
    """Bars: dCUDA and what stands beside it, by path and payload, for one number of threads."""
    ours = [row for row in pick(rows) if row["operation"] in ("notify", "put_notify")]
    paths = values(ours, "path")
    for axes, path in zip(figure.subplots(len(paths), 1, squeeze=False)[:, 0], paths):
        here = [row for row in ours if row["path"] == path]
        threads = 128 if any(row["threads"] == 128 for row in here) else here[0]["threads"]
        here = sorted((row for row in here if row["threads"] == threads), key=lambda row: row["bytes"])
        for place, row in enumerate(here):
            others = sorted(row.get("rivals", []), key=lambda rival: order(rival["name"]))
            width = 0.8 / (len(others) + 1)
            left = place - width * len(others) / 2
            axes.bar(left, row["value"], width, color=COLORS["dcuda"], label="dCUDA", yerr=whiskers([row]), capsize=3)
            for number, rival in enumerate(others, 1):
                axes.bar(left + number * width, rival["value"], width, color=color(rival["name"]), label=rival["name"])
        axes.set_xticks(range(len(here)))
        axes.set_xticklabels(["notify" if row["bytes"] == 0 else in_bytes(row["bytes"]) for row in here])
        finish(axes, f"One-way latency, {path}, {threads} threads", "payload", "microseconds", legend_order=order)


def draw_bandwidth(figure, rows):
    """Over the number of ranks and over the size of a put."""
    puts = [row for row in pick(rows) if row["operation"].startswith("put,")]
    hockney = [row for row in pick(rows) if row["operation"].startswith("put_notify, Hockney")]
    paths = values(puts, "path")
    grid = figure.subplots(len(paths), 2, squeeze=False)
    for (by_ranks, by_size), path in zip(grid, paths):
        here = [row for row in puts if row["path"] == path]
        largest = max(values(here, "bytes"), key=lambda size: len([row for row in here if row["bytes"] == size]))
        curve(by_ranks, [row for row in here if row["bytes"] == largest], "ranks", f"put, {in_bytes(largest)}", 0)
        notified = [row for row in hockney if row["path"] == path]
        if notified:
            curve(by_ranks, notified, "ranks", f"notified, {in_bytes(notified[0]['bytes'])}, Hockney", 1)
        by_ranks.set_xscale("log")
        finish(by_ranks, f"Bandwidth, {path}", "ranks", "GB/s")
        for place, ranks in enumerate(values(here, "ranks")):
            curve(by_size, [row for row in here if row["ranks"] == ranks], "bytes",
                  f"{ranks} rank{'s' if ranks > 1 else ''}", place, rivals=False)
        by_size.set_xscale("log", base=2)
        finish(by_size, f"Bandwidth, {path}", "bytes of a put", "GB/s")


def draw_barrier(figure, rows):
    axes = figure.subplots()
    ours = [row for row in pick(rows) if row["operation"] == "barrier"]
    for path in values(ours, "path"):
        curve(axes, [row for row in ours if row["path"] == path], "ranks", path, place_in(PATHS, path))
    axes.set_xscale("log")
    finish(axes, "Barrier", "ranks of a device", "microseconds")


def draw_overlap(figure, rows):
    """For each kind of work the times of a step, beside what they would be one after the other; below, what is hidden."""
    ours = [row for row in pick(rows) if row["path"] == "neighbours"]
    for row in ours:
        row["oversubscription"] = row["ranks"] / (row["multiprocessors"] or 1)
    kinds = sorted({row["operation"].split(",")[0] for row in ours})
    grid = figure.subplots(2, len(kinds), squeeze=False)
    for times, shares, kind in zip(*grid, kinds):
        parts = {part: {row["oversubscription"]: row for row in pick(ours, operation=f"{kind}, {part}")} for part in PARTS}
        for place, (part, found) in enumerate(parts.items()):
            if found:
                curve(times, found.values(), "oversubscription", part, place)
        both = sorted(set(parts["work only"]) & set(parts["exchange only"]))
        times.plot(both, [parts["work only"][x]["value"] + parts["exchange only"][x]["value"] for x in both], linestyle="--",
                   color=COLORS["plain"], label="one after the other")
        found = pick(ours, operation=f"{kind}, overlap")
        if found:
            curve(shares, found, "oversubscription", "overlap", 0)
        shares.axhline(0.0, color="gray", linewidth=1)
        for row in pick(ours, operation=f"{kind}, saturated from"):
            shares.axvline(row["value"], color=COLORS["plain"], linestyle=":")
            shares.annotate(" saturated", (row["value"], 0.99), xycoords=("data", "axes fraction"),
                            rotation=270, va="top", fontsize="small", color=COLORS["plain-graph"])
        times.set_ylim(bottom=0.0)
        shares.set_ylim(min(-0.1, shares.get_ylim()[0]), max(1.1, shares.get_ylim()[1]))
        finish(times, f"{WORK_IN_WORDS.get(kind, kind)}\n{in_bytes(ours[0]['bytes'])} to each neighbour", "ranks per multiprocessor",
               "microseconds a step", kind == kinds[-1])
        finish(shares, "", "ranks per multiprocessor", "share of the shorter part that is hidden", False)


def draw_waiters(figure, rows):
    axes = figure.subplots()
    ours = [row for row in pick(rows) if row["operation"].endswith(", slow-down")]
    for operation in values(ours, "operation"):
        work = operation.split(",")[0]
        curve(axes, pick(ours, operation=operation), "beside", work, place_in(WORK, work))
    axes.axhline(1.0, color="gray", linewidth=1)
    axes.set_xscale("symlog", linthresh=1)
    finish(axes, "Busy ranks beside waiting ones", "waiting ranks", "time, alone = 1")


def draw_messages(figure, rows, measurement, y):
    """Over the size of a message: dCUDA's ways, those of MPI and NCCL, each library in its colour."""
    axes = figure.subplots()
    of_owner = Counter()
    rows = [row for row in rows if row["operation"].startswith(measurement + ", ")]
    for operation, ranks in sorted({(row["operation"], row["ranks"]) for row in rows}):
        points = sorted((row for row in rows if (row["operation"], row["ranks"]) == (operation, ranks)),
                        key=lambda row: row["bytes"])
        name = operation.split(", ", 1)[1]
        library = name.split(",")[0]
        place = of_owner[library]
        of_owner[library] += 1
        is_ours = owner(library) == "dcuda"
        axes.errorbar([row["bytes"] for row in points], [row["value"] for row in points], yerr=whiskers(points), capsize=3,
                      marker=(MARKERS if is_ours else RIVAL_MARKERS)[place % len(MARKERS)], linestyle="-" if is_ours else "--",
                      color=SHADES[place % len(SHADES)] if is_ours else color(library),
                      label=f"{name}, {ranks}" if ranks > 1 else name)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    finish(axes, f"Between two processes: {measurement}, {rows[0]['machine']}", "bytes of a message", y,
           legend_order=lambda name: (order(name.split(",")[0]), name))


def draw_application(figure, rows):
    """Bars of all models side by side for each number of devices; hatched, what the exchanges alone take of it."""
    axes = figure.subplots()
    devices = sorted({row["devices"] for row in rows})
    axes.set_axisbelow(True)
    width = 0.85 / max(sum(row["devices"] == count for row in rows) for count in devices)
    for place, count in enumerate(devices):
        here = sorted((row for row in rows if row["devices"] == count), key=lambda row: order(row["model"]))
        for number, row in enumerate(here):
            left = place + (number - (len(here) - 1) / 2) * width
            axes.bar(left, row["value"], width, color=color(row["model"]), hatch=pattern(row["model"]),
                     label=row["model"], yerr=whiskers([row]), capsize=3, edgecolor="white", linewidth=0.5)
            if "exchanges_alone" in row:
                axes.bar(left, row["exchanges_alone"], width, color="none", edgecolor="black",
                         hatch=EXCHANGES_PATTERN, linewidth=0.5, label="exchanges alone")
    axes.set_xticks(range(len(devices)))
    axes.set_xticklabels([str(count) for count in devices])
    one = rows[0]
    finish(axes, f"{one['application']}: {one['steps']} {one['step']}s, {one['machine']}", "devices",
           f"milliseconds, median of {one['runs']}",
           legend_order=lambda name: (name == "exchanges alone", order(name)))


PICTURES = {
    "latency": (draw_latency, (13, 8), lambda row: row["operation"] in ("notify", "put_notify")),
    "bandwidth": (draw_bandwidth, (18, 9), lambda row: row["operation"].startswith("put,")),
    "barrier": (draw_barrier, (11, 5), lambda row: row["operation"] == "barrier"),
    "overlap": (draw_overlap, (20, 8), lambda row: row["path"] == "neighbours"),
    "waiters": (draw_waiters, (8, 5), lambda row: row["operation"].endswith(", slow-down")),
    "mpi_latency": (lambda figure, rows: draw_messages(figure, rows, "latency", "microseconds, one way"), (11, 6),
                    lambda row: row["operation"].startswith("latency")),
    "mpi_bandwidth": (lambda figure, rows: draw_messages(figure, rows, "bandwidth", "GB/s"), (11, 6),
                      lambda row: row["operation"].startswith("bandwidth")),
}


def main():
    parser = argparse.ArgumentParser(prog="plot.py", description=__doc__.split("\n\n")[0])
    parser.add_argument("records", nargs="*", metavar="RECORD.json")
    parser.add_argument("--output", default=".", metavar="DIRECTORY", help="where the pictures go (default: here)")
    parser.add_argument("--check", action="store_true", help="only say whether matplotlib is there")
    chosen = parser.parse_args()
    plots = load_matplotlib()
    if chosen.check:
        return
    if not chosen.records:
        parser.error("name at least one record, the file that dcuda-bench --json wrote")
    rows = read(chosen.records)
    output = Path(chosen.output)
    output.mkdir(parents=True, exist_ok=True)
    pictures = []
    for name, (draw, size, belongs) in PICTURES.items():
        mine = [row for row in rows if row.get("benchmark") == name.split("_")[0]]
        if any(belongs(row) for row in pick(mine)):
            pictures.append((name, draw, size, mine))
    applications = [row for row in rows if "application" in row]
    for name in dict.fromkeys(row["application"] for row in applications):
        pictures.append((name, draw_application, (12, 6), [row for row in applications if row["application"] == name]))
    for name, draw, size, mine in pictures:
        figure = plots.figure(figsize=size, layout="constrained")
        draw(figure, mine)
        figure.savefig(output / f"{name}.png", dpi=120)
        plots.close(figure)
        print(output / f"{name}.png")


if __name__ == "__main__":
    main()
