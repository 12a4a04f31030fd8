#!/usr/bin/python3
"""Tests of plot_slots.py on made-up lines shaped as those of `perigee bench --json`, and that the plot
in docs/ is what it draws."""

import contextlib
import io
import json
import pathlib
import tempfile
import unittest
import xml.etree.ElementTree

import plot_slots

SVG = "{http://www.w3.org/2000/svg}"
FIGURES = pathlib.Path(__file__).resolve().parents[2] / "docs" / "figures"


def line(slots: int, prefetch: float, experts: float, *, tokens: int = 128, ranks: int = 2,
         operations: tuple[str, ...] = plot_slots.OPERATIONS) -> str:
    medians = dict(zip(plot_slots.OPERATIONS, (prefetch, experts, prefetch + experts + 5)))
    measured = {"shape": f"S{tokens},H8,K2,E8,P1,B{slots},I8", "experts": 8, "slots": slots,
                "operations": [{"operation": name, "median_us": medians[name]}
                               for name in operations]}
    return json.dumps({"ranks": ranks, "device": "<a> device (x)", "backend": "cuda", "sms": 16,
                       "shapes": [measured]}) + "\n"


class PlotSlotsTest(unittest.TestCase):

    def read(self, *lines: str) -> plot_slots.Sweep:
        return plot_slots.read_sweep(lines)

    def test_shapes_alike_but_for_slots_are_one_sweep(self) -> None:
        sweep = self.read(line(4, 9, 90), line(0, 1, 100), line(1, 3, 99), line(0, 2, 101),
                          line(0, 7, 7, tokens=64), line(2, 7, 7, tokens=64), line(2, 8, 8, ranks=4))
        self.assertEqual(sweep.machine, "2 ranks on <a> device, SMs 16")
        self.assertEqual(sweep.shape, "S128,H8,K2,E8,P1,I8")
        self.assertEqual(sweep.all_slots, 4)
        self.assertEqual(list(sweep.medians), [0, 1, 4])
        self.assertEqual(sweep.taken(0), 2, "the last line of a B counts")
        self.assertEqual(sweep.saved(4), 11)

    def test_the_crossover_is_where_a_prefetch_saves_more_than_it_takes(self) -> None:
        even = line(0, 1, 100)
        self.assertIsNone(self.read(even, line(1, 3, 101), line(4, 9, 102)).crossover())
        self.assertEqual(self.read(even, line(1, 30, 90), line(2, 5, 90), line(4, 5, 80)).crossover(),
                         2)
        self.assertIsNone(self.read(even, line(1, 5, 90), line(4, 30, 90)).crossover(), "not for good")

    def test_every_figure_and_the_verdict_are_drawn(self) -> None:
        drawn = plot_slots.draw(self.read(line(0, 1, 100), line(1, 3, 90), line(4, 9, 104)))
        root = xml.etree.ElementTree.fromstring(drawn)
        words = [element.text for element in root.iter(f"{SVG}text")]
        self.assertIn("2 ranks on <a> device, SMs 16; no crossover", words)
        for word in ("0", "1", "4 (E/R)", "106", "98", "118", "101", "93", "113", "9", "10", "-4"):
            self.assertIn(word, words)
        # Three points on each of four curves: circles and triangles of one, squares and diamonds.
        self.assertEqual(len(list(root.iter(f"{SVG}circle"))), 3 + 1)

    def test_the_plot_in_docs_is_drawn_from_the_recorded_figures(self) -> None:
        with (FIGURES / "slots.jsonl").open(encoding="utf-8") as lines:
            drawn = plot_slots.draw(plot_slots.read_sweep(lines))
        self.assertEqual(drawn, (FIGURES / "slots.svg").read_text(encoding="utf-8"))

    def test_what_is_missing_is_named(self) -> None:
        for lines in ([], [line(1, 3, 99), line(4, 3, 99)], [line(0, 1, 100)],
                      [line(0, 1, 100), line(4, 1, 1, operations=("layer",))]):
            with self.assertRaisesRegex(ValueError, "of B 0 and another B"):
                self.read(*lines)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "bench.jsonl"
            path.write_text("{}\n", encoding="utf-8")
            errors = io.StringIO()
            with contextlib.redirect_stderr(errors):
                self.assertEqual(plot_slots.main([str(path)]), 1)
            self.assertIn("plot_slots.py: KeyError", errors.getvalue())


if __name__ == "__main__":
    unittest.main()
