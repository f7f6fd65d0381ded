#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Colours and order in the pictures of plot.py, and where the legend stands: what figures hold, no pixels.

    plot_test.py
"""
import colorsys
import importlib.util
import itertools
import random
import re
import sys
import unittest
from pathlib import Path

BENCHMARKS = Path(__file__).resolve().parent.parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(BENCHMARKS))
import plot  # noqa: E402


def known_models():
    """All that the case studies take for --model."""
    lists = [re.findall(r'\{("dcuda"[^}]*)\}', file.read_text())
             for file in BENCHMARKS.glob("case_studies/*/options.cpp")]
    return {model for one in itertools.chain(*lists) for model in re.findall(r'"([^"]+)"', one)}


def shown(code):
    return tuple(int(code[at:at + 2], 16) / 255 for at in (1, 3, 5))


class Table(unittest.TestCase):
    def test_every_model_has_a_colour_of_its_own(self):
        models = known_models()
        self.assertLessEqual({"dcuda", "plain", "mpi", "nccl", "nvshmem", "host"}, models)
        for model in models:
            self.assertIn(model, plot.COLORS)
        self.assertEqual(len(set(plot.COLORS.values())), len(plot.COLORS))

    def test_no_colour_is_red_or_green(self):
        for code in (*plot.COLORS.values(), *plot.SHADES):
            hue, _, saturation = colorsys.rgb_to_hls(*shown(code))
            degrees = 360 * hue
            if saturation > 0.15:
                self.assertFalse(degrees < 25 or degrees > 345, f"{code} is red")
                self.assertFalse(75 < degrees < 170, f"{code} is green")

    def test_options_change_the_pattern_and_not_the_colour(self):
        self.assertEqual(plot.color("dcuda --fused"), plot.COLORS["dcuda"])
        patterns = {plot.pattern(model) for model in ("dcuda", "dcuda --fused", "dcuda --message plane",
                                                      "dcuda --fused --message plane", "dcuda --unknown 3")}
        self.assertEqual(len(patterns), 5)
        self.assertNotIn(plot.EXCHANGES_PATTERN, patterns)

    def test_rivals_belong_to_a_model(self):
        for name, owner in (("raw flag", "plain"), ("raw packets", "plain"), ("copy engine", "plain"),
                            ("grid.sync", "plain"), ("NVSHMEM putmem_signal_block", "nvshmem"),
                            ("NCCL send/recv, eager", "nccl"), ("NCCL send/recv, graph", "nccl-graph"),
                            ("dCUDA", "dcuda"), ("nobody knows it", "another")):
            self.assertEqual(plot.owner(name), owner, name)

    def test_the_order_is_that_of_the_table(self):
        names = ["nobody knows it", "nvshmem", "mpi", "dcuda --fused", "plain-graph", "dcuda", "NCCL send/recv, graph",
                 "nccl", "host", "plain"]
        expected = ["dcuda", "dcuda --fused", "plain", "plain-graph", "host", "mpi", "nccl", "NCCL send/recv, graph",
                    "nvshmem", "nobody knows it"]
        for seed in range(5):
            random.Random(seed).shuffle(names)
            self.assertEqual(sorted(names, key=plot.order), expected)


def application_row(model, devices, value):
    return {"application": "stencil", "model": model, "devices": devices, "value": value, "low": value - 0.1,
            "high": value + 0.1, "exchanges_alone": 0.5, "steps": 200, "step": "iteration", "runs": 20,
            "machine": "a machine"}


def measured(benchmark, operation, path="same device", **others):
    return {"benchmark": benchmark, "path": path, "operation": operation, "bytes": 4, "threads": 128, "ranks": 1,
            "beside": 0, "unit": "us", "value": 2.0, "low": 1.9, "high": 2.1, "multiprocessors": 132, **others}


@unittest.skipUnless(importlib.util.find_spec("matplotlib"), "no matplotlib")
class Pictures(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.plots = plot.load_matplotlib()
        cls.color_of = staticmethod(importlib.import_module("matplotlib.colors").to_hex)

    def figure(self, draw, rows, size=(13, 8)):
        figure = self.plots.figure(figsize=size, layout="constrained")
        self.addCleanup(self.plots.close, figure)
        draw(figure, rows)
        figure.canvas.draw()
        return figure

    def bars(self, axes):
        """Label, colour and place of each bar with a label, from left to right."""
        found = [(bars.patches[0].get_x(), bars.get_label(), self.color_of(bars.patches[0].get_facecolor()))
                 for bars in axes.containers if hasattr(bars, "patches")]
        return [(label, code) for _, label, code in sorted(found) if label != "exchanges alone"]

    def expect_legends_outside(self, figure):
        legends = 0
        for axes in figure.axes:
            if axes.get_legend() is None:
                continue
            legends += 1
            legend = axes.get_legend().get_window_extent()
            self.assertGreaterEqual(legend.x0, axes.get_window_extent().x1)
            self.assertLessEqual(legend.x1, figure.bbox.x1)
            for other in figure.axes:
                self.assertFalse(legend.overlaps(other.get_window_extent()))
        self.assertGreater(legends, 0)

    def test_a_model_looks_the_same_whatever_else_was_measured(self):
        models = ["dcuda", "dcuda --fused", "plain", "host", "mpi", "nccl", "nccl-graph", "nvshmem"]
        for seed in range(3):
            some = random.Random(seed).sample(models, 4)
            rows = [application_row(model, devices, 1.0 + place)
                    for place, model in enumerate(some) for devices in (2, 1)]
            figure = self.figure(plot.draw_application, rows, (12, 6))
            expected = [(model, plot.COLORS[model.split()[0]].lower()) for model in sorted(some, key=models.index)]
            self.assertEqual(self.bars(figure.axes[0]), 2 * expected)
            texts = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
            self.assertEqual(texts, [model for model, _ in expected] + ["exchanges alone"])
            self.expect_legends_outside(figure)

    def test_rivals_of_latencies_stand_in_order_with_their_colours(self):
        rivals = [{"name": name, "value": 3.0} for name in ("NVSHMEM putmem_signal_block", "raw packets",
                                                            "NCCL send/recv, graph", "NCCL send/recv, eager")]
        expected = [("dCUDA", "dcuda"), ("raw packets", "plain"), ("NCCL send/recv, eager", "nccl"),
                    ("NCCL send/recv, graph", "nccl-graph"), ("NVSHMEM putmem_signal_block", "nvshmem")]
        for order in (rivals, rivals[::-1]):
            figure = self.figure(plot.draw_latency, [measured("latency", "put_notify", rivals=order)])
            self.assertEqual(self.bars(figure.axes[0]),
                             [(name, plot.COLORS[owner].lower()) for name, owner in expected])
            self.expect_legends_outside(figure)

    def test_curves_have_fixed_colours(self):
        world = measured("barrier", "barrier", "all devices", rivals=[{"name": "NVSHMEM sync_all_block", "value": 4.0}])
        alone = measured("barrier", "barrier", rivals=[{"name": "grid.sync", "value": 1.0}])
        seen = []
        for rows in ([world], [world, alone], [alone, world]):
            axes = self.figure(plot.draw_barrier, rows, (11, 5)).axes[0]
            handles, labels = axes.get_legend_handles_labels()
            lines = [getattr(handle, "lines", [handle])[0] for handle in handles]
            colors = {label: self.color_of(line.get_color()) for label, line in zip(labels, lines)}
            texts = [text.get_text() for text in axes.get_legend().get_texts()]
            self.assertEqual(set(texts[:len(rows)]), {row["path"] for row in rows})
            self.assertEqual(colors["NVSHMEM sync_all_block (all devices)"], plot.COLORS["nvshmem"].lower())
            seen.append(colors["all devices"])
            self.expect_legends_outside(axes.figure)
        self.assertEqual(len(set(seen)), 1)

    def test_the_legends_of_the_other_pictures_stand_outside_too(self):
        puts = [measured("bandwidth", "put, 1 rank", path, bytes=size, ranks=ranks,
                         rivals=[{"name": "NVSHMEM putmem_nbi_block, 16 x 1024", "value": 9.0}])
                for path in ("same device", "peer") for size in (65536, 1048576) for ranks in (1, 16, 396)]
        self.expect_legends_outside(self.figure(plot.draw_bandwidth, puts, plot.PICTURES["bandwidth"][1]))
        steps = [measured("overlap", f"{work}, {part}", "neighbours", ranks=ranks)
                 for work in plot.WORK for part in (*plot.PARTS, "overlap") for ranks in (132, 264)]
        self.expect_legends_outside(self.figure(plot.draw_overlap, steps, plot.PICTURES["overlap"][1]))
        busy = [measured("waiters", f"{work}, slow-down", beside=beside) for work in plot.WORK for beside in (0, 132)]
        self.expect_legends_outside(self.figure(plot.draw_waiters, busy, plot.PICTURES["waiters"][1]))


if __name__ == "__main__":
    unittest.main(verbosity=2)
