#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Reads a timeline that DCUDA_TRACE (dcuda-run --trace) has written: where the time of a run went, or a picture of it.

docs/guide/tracing.md defines what the numbers mean.
"""
import argparse
import bisect
import json
import re
import signal
import sys
from collections import defaultdict
from pathlib import Path

VERSION = "0.1.0"  # as in include/dcuda/config.hpp

# What a rank does in an operation: the category of its event. Outside of operations it computes.
ACTIVITIES = {"putting", "waiting", "collective"}
MESSAGES = {"put", "put_notify", "notify"}


MOST_MICROSECONDS = 1e15  # thirty years


def checked(value, kind, least=float("-inf"), most=float("inf")):
    """The value, if it is what it should be: a file may hold anything."""
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"{value!r:.80} is not {kind}")
    if kind is not str and kind is not dict and not least <= value <= most:
        raise ValueError(f"{value!r:.80} is not from {least} to {most}")
    return value


def time_of(event, member="ts", least=-MOST_MICROSECONDS):
    return float(checked(event[member], (int, float), least, MOST_MICROSECONDS))


class Slice:
    """An operation, a range or the kernel of a rank. Times are in microseconds."""

    # What is read of an operation's arguments.
    ARGUMENTS = {"unfinished": bool, "through_mailbox": bool, "of": str, "path": str, "bytes": int, "multiprocessor": int, "tag": int,
                 "count": int}

    def __init__(self, event, rank):
        self.rank = rank
        self.name = checked(event["name"], str)
        category = checked(event["cat"], str)
        if category not in {"kernel", "range", *ACTIVITIES}:
            raise ValueError(f"{category!r:.80} is no category of what a rank does")
        self.is_range = category == "range"
        self.kind = category if category in ACTIVITIES else None
        self.begin = time_of(event)
        self.end = self.begin + time_of(event, "dur", 0)
        self.args = checked(event.get("args", {}), dict)
        for name, kind in self.ARGUMENTS.items():
            if name in self.args:
                checked(self.args[name], kind, 0, 2**64)
        self.sources = []  # slices of the notifications that a wait has consumed

    @property
    def length(self):
        return self.end - self.begin


class Rank:
    def __init__(self, number, process, run):
        self.number, self.process, self.run = number, process, run
        self.kernel = None
        self.operations, self.ranges = [], []
        self.multiprocessor = 0


class Run:
    """One run of a kernel, on all processes."""

    def __init__(self, number):
        self.number = number
        self.begin, self.end = float("inf"), float("-inf")
        self.ranks = {}
        self.about = []  # what the file says of it, by process

    @property
    def length(self):
        return self.end - self.begin

    @property
    def ranks_length(self):
        """From the first rank's begin to the last one's end: without what the host takes to start a kernel."""
        kernels = [rank.kernel for rank in self.ranks.values()]
        return max(one.end for one in kernels) - min(one.begin for one in kernels) if kernels else 0.0

    @property
    def dropped(self):
        return sum(part.get("dropped", 0) for part in self.about)

    @property
    def failure(self):
        return next((part["failure"] for part in self.about if part.get("failure")), "")


def read(file):
    """The runs of a timeline."""
    try:
        content = json.loads(Path(file).read_text())
        events, about = content["traceEvents"], content["dcuda"]
        return runs_of(events, about)
    except OSError as problem:
        sys.exit(f"dcuda-trace: {file} cannot be read: {problem.strerror}")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        sys.exit(f"dcuda-trace: {file} is no timeline of dCUDA (DCUDA_TRACE): {printable(repr(problem))}")


def runs_of(events, about):
    threads = {}  # (pid, tid): world rank
    runs = {}
    for event in events:
        checked(event["ph"], str)
        checked(event.get("pid", 0), int)
        checked(event.get("tid", 0), int)
        if event["ph"] == "M" and event["name"] == "thread_name" and event["args"]["name"].startswith("rank "):
            threads[event["pid"], event["tid"]] = int(event["args"]["name"][5:])
        if event["ph"] == "X" and event.get("cat") == "host" and re.fullmatch(r"run \d+", event["name"]):
            run = runs.setdefault(int(event["name"][4:]), Run(int(event["name"][4:])))
            run.begin = min(run.begin, time_of(event))
            run.end = max(run.end, time_of(event) + time_of(event, "dur", 0))
    ordered = sorted(runs.values(), key=lambda run: run.begin)
    for part in about["runs"]:
        for name, kind in (("run", int), ("dropped", int), ("failure", str), ("missing", str)):
            checked(part.get(name, kind()), kind, 0, 2**64)
        if part["run"] in runs:
            runs[part["run"]].about.append(part)
    begins = [run.begin for run in ordered]

    by_thread = defaultdict(list)
    flows = defaultdict(dict)
    for event in events:
        if event["ph"] in ("s", "f"):
            flows[checked(event["id"], int)][event["ph"]] = event
        key = (event["pid"], event["tid"])
        if event["ph"] != "X" or key not in threads or not ordered:
            continue
        # Clocks of different hosts may differ by more than a run's begin is before its first event.
        middle = time_of(event) + time_of(event, "dur", 0) / 2
        run = ordered[max(0, bisect.bisect_right(begins, middle) - 1)]
        rank = run.ranks.setdefault(threads[key], Rank(threads[key], event["pid"], run))
        one = Slice(event, rank)
        if one.name == "kernel" and not one.is_range:
            rank.kernel = one
        else:
            (rank.ranges if one.is_range else rank.operations).append(one)
        if one.name == "init":
            rank.multiprocessor = one.args.get("multiprocessor", 0)
        if one.kind:
            by_thread[key].append(one)
    for run in ordered:
        run.ranks = {number: rank for number, rank in sorted(run.ranks.items()) if rank.kernel is not None}
        for rank in run.ranks.values():
            rank.operations.sort(key=lambda one: one.begin)

    starts = {}
    for key, slices in by_thread.items():
        slices.sort(key=lambda one: one.begin)
        starts[key] = [one.begin for one in slices]

    def slice_at(event):
        key = (event["pid"], event["tid"])
        position = bisect.bisect_right(starts.get(key, []), time_of(event) + 5e-4) - 1
        return by_thread[key][position] if position >= 0 else None

    for flow in flows.values():
        if "s" in flow and "f" in flow:
            source, target = slice_at(flow["s"]), slice_at(flow["f"])
            # A rank without a kernel is left out, and nobody waits for one of another run.
            if source and target and all(one.rank.run.ranks.get(one.rank.number) is one.rank for one in (source, target)):
                if source.rank.run is target.rank.run:
                    target.sources.append(source)
    return ordered


def choose(runs, wanted, file):
    if not runs:
        sys.exit(f"dcuda-trace: there is no run in {file}")
    if wanted is None:
        return max(runs, key=lambda run: run.length)
    for run in runs:
        if run.number == wanted:
            return run
    sys.exit(f"dcuda-trace: there is no run {wanted} in {file}; it has {', '.join(str(run.number) for run in runs)}")


# --- Numbers ---------------------------------------------------------------------------------------------------------


def times_of(rank):
    """Microseconds of a rank's kernel by what it did."""
    times = {"total": rank.kernel.length, "computing": 0.0, "waiting": 0.0, "collective": 0.0, "putting": 0.0}
    for one in rank.operations:
        times[one.kind] += one.length
    times["computing"] = max(0.0, times["total"] - times["waiting"] - times["collective"] - times["putting"])
    return times


def overlap_of(run):
    """The part of all waiting for notifications during which another rank of the same multiprocessor computed, or None.
    """
    groups = defaultdict(list)
    for rank in run.ranks.values():
        groups[rank.process, rank.multiprocessor].append(rank)
    hidden = waited = 0.0
    for ranks in groups.values():
        changes = []  # time, computing ranks, waiting ranks
        for rank in ranks:
            changes += [(rank.kernel.begin, 1, 0), (rank.kernel.end, -1, 0)]
            for one in rank.operations:
                waits = 1 if one.kind == "waiting" else 0
                changes += [(one.begin, -1, waits), (one.end, 1, -waits)]
        changes.sort(key=lambda change: change[0])
        computing = waiting = 0
        before = changes[0][0]
        for time, computes, waits in changes:
            waited += waiting * (time - before)
            if computing > 0:
                hidden += waiting * (time - before)
            before = time
            computing += computes
            waiting += waits
    return hidden / waited if waited > 0 else None


def last_source(wait):
    return max(wait.sources, key=lambda source: source.begin)


def latest_senders(run):
    """For whom was waited: of each sender the waits that its notification ended, how long they were, and how much of
    that was before it was issued."""
    senders = {}
    for rank in run.ranks.values():
        for wait in rank.operations:
            if not wait.sources:
                continue
            source = last_source(wait)
            entry = senders.setdefault(source.rank.number, {"rank": source.rank.number, "waits": 0, "waited_us": 0.0,
                                                            "late_us": 0.0, "by": defaultdict(float)})
            entry["waits"] += 1
            entry["waited_us"] += wait.length
            entry["late_us"] += min(max(0.0, source.begin - wait.begin), wait.length)
            entry["by"][rank.number] += wait.length
    for entry in senders.values():
        entry["most_by"] = max(entry.pop("by").items(), key=lambda item: item[1])[0]
    return sorted(senders.values(), key=lambda entry: -entry["waited_us"])


def last_of_collectives(run):
    """Of each operation in which ranks meet, the last rank's. Of the n-th barrier of each rank those that are one."""
    parties = defaultdict(list)
    for rank in run.ranks.values():
        by_name = defaultdict(list)
        for one in rank.operations:
            if one.kind == "collective":
                of_world = one.name in ("init", "finish") or one.args.get("of") == "world"
                by_name[one.name, None if of_world else rank.process].append(one)
        for key, ones in by_name.items():
            for position, one in enumerate(ones):
                # Events are missing at the begin, where the latest are kept; else at the end, where a run failed.
                parties[key, position - len(ones) if run.dropped else position].append(one)
    last = {}
    for ones in parties.values():
        latest = max(ones, key=lambda one: one.begin)
        for one in ones:
            last[one] = latest
    return last


def critical_path(run):
    """The chain of what had to come after each other, from the run's end back to its begin: [(kind, rank, begin, end)].
    """
    last_of = last_of_collectives(run)
    blocking = {}
    for rank in run.ranks.values():
        ones = []
        for one in rank.operations:
            if one.args.get("unfinished"):
                continue
            if one.sources and last_source(one).begin > one.begin:
                ones.append((one, last_source(one)))
            elif one in last_of and last_of[one].begin > one.begin and last_of[one].rank is not rank:
                ones.append((one, last_of[one]))
        ones.sort(key=lambda item: item[0].end)
        blocking[rank] = ([one.end for one, _ in ones], ones)

    path = []
    rank = max(run.ranks.values(), key=lambda each: each.kernel.end)
    time = rank.kernel.end
    while True:
        ends, ones = blocking[rank]
        position = bisect.bisect_right(ends, time + 1e-9) - 1
        # Clocks are not exact: a step that does not lead back is none.
        while position >= 0 and min(ones[position][1].begin, ones[position][0].end) >= time:
            position -= 1
        if position < 0:
            break
        one, cause = ones[position]
        end = min(one.end, time)
        path.append(("own", rank, end, time))
        path.append(("message" if one.kind == "waiting" else "collective", rank, min(cause.begin, end), end))
        rank, time = cause.rank, min(cause.begin, end)
    path.append(("own", rank, min(rank.kernel.begin, time), time))
    return list(reversed(path))


def path_totals(path):
    """What the critical path consists of, in microseconds, and which rank has how much of it."""
    totals = {"computing": 0.0, "putting": 0.0, "messages": 0.0, "collectives": 0.0, "waiting": 0.0}
    by_rank = defaultdict(float)
    for kind, rank, begin, end in path:
        if kind != "own":
            totals["messages" if kind == "message" else "collectives"] += end - begin
            continue
        inside = {"putting": 0.0, "waiting": 0.0}
        for one in rank.operations:
            part = min(end, one.end) - max(begin, one.begin)
            if part > 0:
                inside["putting" if one.kind == "putting" else "waiting"] += part
        own = end - begin - inside["putting"] - inside["waiting"]
        totals["computing"] += own
        for kind, length in inside.items():
            totals[kind] += length
        by_rank[rank.number] += end - begin
    return totals, by_rank


def messages_of(run):
    """Operations and bytes by path."""
    paths = defaultdict(lambda: {"messages": 0, "bytes": 0, "through_mailbox": 0})
    for rank in run.ranks.values():
        for one in rank.operations:
            if one.name in MESSAGES and "path" in one.args:
                entry = paths[one.args["path"]]
                entry["messages"] += 1
                entry["bytes"] += one.args.get("bytes", 0)
                entry["through_mailbox"] += bool(one.args.get("through_mailbox"))
    return dict(paths)


def ranges_of(run):
    """Count and time of the user's ranges, by name; the numbers at their ends left out."""
    ranges = {}
    for rank in run.ranks.values():
        for one in rank.ranges:
            entry = ranges.setdefault(re.sub(r" -?\d+$", "", one.name), {"count": 0, "total_us": 0.0})
            entry["count"] += 1
            entry["total_us"] += one.length
    return ranges


def unfinished_of(run):
    return [one for rank in run.ranks.values() for one in rank.operations if one.args.get("unfinished")]


def summary_of(run, run_count):
    path = critical_path(run)
    totals, by_rank = path_totals(path)
    times = {number: times_of(rank) for number, rank in run.ranks.items()}
    overall = {kind: sum(each[kind] for each in times.values())
               for kind in ("total", "computing", "waiting", "collective", "putting")}
    return {
        "run": run.number,
        "runs": run_count,
        "failure": run.failure,
        "length_us": run.length,
        "dropped": run.dropped,
        "ranks": [{"rank": number, "process": run.ranks[number].process, **each} for number, each in times.items()],
        "overall": overall,
        "computing_ranks": overall["computing"] / run.ranks_length if run.ranks_length > 0 else 0.0,
        "overlap": overlap_of(run),
        "messages": messages_of(run),
        "ranges": ranges_of(run),
        "latest_senders": latest_senders(run),
        "unfinished": [{"rank": one.rank.number, "operation": one.name, "since_us": one.begin - run.begin,
                        **{key: value for key, value in one.args.items() if key != "unfinished"}}
                       for one in unfinished_of(run)],
        "critical_path": {
            "length_us": path[-1][3] - path[0][2],
            **{f"{kind}_us": length for kind, length in totals.items()},
            "steps": sum(kind != "own" for kind, *_ in path),
            "by_rank_us": {str(number): length for number, length in sorted(by_rank.items(), key=lambda item: -item[1])},
            "path": [{"activity": kind, "rank": rank.number, "begin_us": begin - run.begin, "end_us": end - run.begin}
                     for kind, rank, begin, end in path],
        },
    }


# --- Words -----------------------------------------------------------------------------------------------------------


def printable(text):
    """As it may be printed: a file's names must not steer the terminal."""
    return "".join(c if c.isprintable() else "?" for c in text)


def in_time(microseconds):
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if abs(microseconds) >= size:
            return f"{microseconds / size:.4g} {unit}"
    return f"{microseconds:.4g} us"


def share(part, whole):
    return f"{100 * part / whole:.1f} %" if whole > 0 else "-"


def print_summary(found, top):
    which = f" of {found['runs']}" + (", the longest" if found["chosen"] else "") if found["runs"] > 1 else ""
    print(f"run {found['run']}{which}: {len(found['ranks'])} ranks, {in_time(found['length_us'])}")
    if found["failure"]:
        print(f"it failed: {printable(found['failure'])}")
    if found["dropped"]:
        print(f"{found['dropped']} events were overwritten (DCUDA_TRACE_EVENTS): times of computing are too long")
    kinds = ("computing", "waiting", "collective", "putting")
    print(f"\n{'rank':>8} {'time':>11}" + "".join(f" {kind:>11}" for kind in kinds))
    rows = found["ranks"]
    shown = rows if len(rows) <= top else sorted(rows, key=lambda row: row["computing"] - row["total"])[:top]
    for row in sorted(shown, key=lambda row: row["rank"]):
        print(f"{row['rank']:>8} {in_time(row['total']):>11}"
              + "".join(f" {share(row[kind], row['total']):>11}" for kind in kinds))
    if len(shown) < len(rows):
        print(f"     ... the {len(shown)} ranks that computed least; --top N shows more")
    overall = found["overall"]
    print(f"{'all':>8} {in_time(overall['total']):>11}"
          + "".join(f" {share(overall[kind], overall['total']):>11}" for kind in kinds))
    print(f"\ncomputing at a time: {found['computing_ranks']:.2f} of {len(rows)} ranks, on average")
    if found["overlap"] is not None:
        print(f"overlap: {100 * found['overlap']:.1f} % of the waiting was hidden behind other ranks that computed")
    if found["messages"]:
        print("\nmessages: " + "; ".join(f"{entry['messages']} {printable(path)} ({entry['bytes']} B, {entry['through_mailbox']} as messages)"
                                        for path, entry in sorted(found["messages"].items())))
    if found["ranges"]:
        print(f"\n{'range':<24} {'count':>8} {'time':>11} {'mean':>11}")
        for name, entry in sorted(found["ranges"].items(), key=lambda item: -item[1]["total_us"])[:top]:
            print(f"{printable(name):<24} {entry['count']:>8} {in_time(entry['total_us']):>11} "
                  f"{in_time(entry['total_us'] / entry['count']):>11}")
    if found["latest_senders"]:
        print(f"\n{'waited for':<12} {'waits':>8} {'waited':>11} {'of this late':>13}   most by")
        for entry in found["latest_senders"][:top]:
            print(f"rank {entry['rank']:<7} {entry['waits']:>8} {in_time(entry['waited_us']):>11} "
                  f"{in_time(entry['late_us']):>13}   rank {entry['most_by']}")
    for one in found["unfinished"][:top]:
        rest = ", ".join(f"{key} {printable(str(value))}" for key, value in one.items() if key in ("tag", "count", "of"))
        print(f"\nunfinished: rank {one['rank']} in {printable(one['operation'])}" + (f" ({rest})" if rest else "")
              + f" since {in_time(one['since_us'])}", end="")
    if found["unfinished"]:
        print()
    path = found["critical_path"]
    length = path["length_us"]
    print(f"\ncritical path: {in_time(length)} in {path['steps']} steps: computing {share(path['computing_us'], length)}, "
          f"messages {share(path['messages_us'], length)}, collectives {share(path['collectives_us'], length)}, "
          f"putting {share(path['putting_us'], length)}, waiting in vain {share(path['waiting_us'], length)}")
    print("on it were: " + ", ".join(f"rank {rank} {share(part, length)}"
                                    for rank, part in list(path["by_rank_us"].items())[:top]))


# --- Picture ---------------------------------------------------------------------------------------------------------

COLOURS = {"computing": "#8fbf7f", "waiting": "#d9604c", "collective": "#b0a8b9", "putting": "#3f78b5"}
MOST_ARROWS = 400
MOST_ROWS = 64


def load_matplotlib():
    try:
        import matplotlib
    except ImportError:
        sys.exit("dcuda-trace: plot needs matplotlib: apt-get install python3-matplotlib, or python3 -m pip install matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plots

    return plots


def parse_ranks(text):
    """0-3,7 as a set of numbers."""
    chosen = set()
    for part in text.split(","):
        found = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if not found:
            raise argparse.ArgumentTypeError(f"{text} is no list of ranks such as 0-3,7")
        chosen.update(range(int(found[1]), int(found[2] or found[1]) + 1))
    return chosen


def plot(run, arguments):
    plots = load_matplotlib()
    ranks = [rank for number, rank in run.ranks.items() if arguments.ranks is None or number in arguments.ranks]
    if not ranks:
        sys.exit(f"dcuda-trace: none of these ranks is in run {run.number}; it has {min(run.ranks)} to {max(run.ranks)}")
    left_out = len(ranks) - MOST_ROWS
    ranks = ranks[:MOST_ROWS]
    begin = run.begin + (arguments.begin or 0) * 1000
    end = run.begin + arguments.end * 1000 if arguments.end is not None else max(rank.kernel.end for rank in ranks)
    if end <= begin:
        sys.exit("dcuda-trace: nothing lies between --from and --to")
    scale, unit = (1e3, "ms") if end - begin >= 2000 else (1.0, "us")
    figure, axes = plots.subplots(figsize=(12, 1.6 + 0.32 * len(ranks)), layout="constrained")

    def bars(slices, row, height, colour, **more):
        visible = [one for one in slices if one.end > begin and one.begin < end]
        axes.broken_barh([((one.begin - run.begin) / scale, one.length / scale) for one in visible],
                         (row - height / 2, height), facecolors=colour, **more)

    rows = {rank: row for row, rank in enumerate(ranks)}
    for rank, row in rows.items():
        bars([rank.kernel], row, 0.8, COLOURS["computing"])
        for kind in ("collective", "waiting", "putting"):
            bars([one for one in rank.operations if one.kind == kind], row, 0.8, COLOURS[kind])
        bars(rank.ranges, row + 0.32, 0.14, "none", edgecolors="#404040", linewidth=0.6)
        for one in rank.ranges:
            if begin <= one.begin < end and one.length > (end - begin) / 40:
                axes.text((one.begin - run.begin) / scale, row + 0.2, printable(one.name), fontsize=6, va="bottom", clip_on=True,
                          parse_math=False)
    arrows = [(source, wait) for rank in ranks for wait in rank.operations for source in wait.sources
              if source.rank in rows and wait.end > begin and source.begin < end]
    if len(arrows) <= MOST_ARROWS:
        for source, wait in arrows:
            arrow = axes.annotate("", ((wait.end - run.begin) / scale, rows[wait.rank]),
                                  ((source.begin - run.begin) / scale, rows[source.rank]), annotation_clip=False,
                                  arrowprops={"arrowstyle": "->", "color": "#202020", "linewidth": 0.7, "alpha": 0.7})
            arrow.arrow_patch.set_clip_box(axes.bbox)  # it may begin before what is shown
    axes.set_xlim((begin - run.begin) / scale, (end - run.begin) / scale)
    axes.set_ylim(len(ranks) - 0.4, -0.6)
    axes.set_yticks(range(len(ranks)), [f"rank {rank.number}" for rank in ranks])
    axes.set_xlabel(f"{unit} since the start of run {run.number}"
                    + (f"; {left_out} more ranks are not shown (--ranks)" if left_out > 0 else "")
                    + ("; too many notifications for arrows" if len(arrows) > MOST_ARROWS else ""))
    axes.spines[["top", "right"]].set_visible(False)
    handles = [plots.Rectangle((0, 0), 1, 1, color=colour) for colour in COLOURS.values()]
    figure.legend(handles, COLOURS.keys(), loc="outside upper right", ncols=len(COLOURS), frameon=False)
    if arguments.title:
        axes.set_title(arguments.title, loc="left")
    try:
        figure.savefig(arguments.picture, dpi=130)
    except (OSError, ValueError) as problem:
        sys.exit(f"dcuda-trace: {arguments.picture} cannot be written: {problem}")


def check_options(parser, commands, words):
    """argparse names an option that it does not know only if nothing else is wrong."""
    known = {name for each in (parser, *commands) for name in each._option_string_actions}
    for word in words:
        if word == "--":
            return
        if re.match(r"--?[A-Za-z]", word) and word.split("=")[0] not in known:
            parser.error(f"unknown option {word}")


def main():
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # whoever reads the summary may have read enough
    parser = argparse.ArgumentParser(prog="dcuda-trace", description=__doc__.split("\n")[0], allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"dcuda-trace {VERSION}")
    commands = parser.add_subparsers(dest="command", required=True)
    summary = commands.add_parser("summary", help="where the time went, who was waited for, the critical path",
                                  allow_abbrev=False)
    summary.add_argument("--json", action="store_true", help="for machines; all of it")
    summary.add_argument("--top", type=int, default=10, help="lines of each table (default 10)")
    picture = commands.add_parser("plot", help="a picture of the ranks over time (needs matplotlib)", allow_abbrev=False)
    picture.add_argument("--ranks", type=parse_ranks, help="these, such as 0-3,7")
    picture.add_argument("--from", dest="begin", type=float, help="ms after the run's start")
    picture.add_argument("--to", dest="end", type=float, help="ms after the run's start")
    picture.add_argument("--title")
    for command in (summary, picture):
        command.add_argument("--run", type=int, help="number of the run (default: the longest)")
        command.add_argument("file", help="what DCUDA_TRACE has named")
    picture.add_argument("picture", help="PNG, or what the ending says")
    check_options(parser, (summary, picture), sys.argv[1:])
    arguments = parser.parse_args()

    runs = read(arguments.file)
    run = choose(runs, arguments.run, arguments.file)
    if not run.ranks:
        reason = next((part["missing"] for part in run.about if part.get("missing")), "")
        sys.exit(f"dcuda-trace: there are no ranks in run {run.number}" + (f": {printable(reason)}" if reason else ""))
    if arguments.command == "plot":
        return plot(run, arguments)
    found = {**summary_of(run, len(runs)), "chosen": arguments.run is None}
    if arguments.json:
        print(json.dumps(found, indent=1))
    else:
        print_summary(found, arguments.top)


if __name__ == "__main__":
    main()
