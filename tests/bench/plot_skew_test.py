#!/usr/bin/python3
"""Tests of plot_skew.py on made-up traces and lines shaped as those of `perigee bench --json`."""

import contextlib
import io
import json
import pathlib
import struct
import tempfile
import unittest
import xml.etree.ElementTree

import plot_skew

SVG = "{http://www.w3.org/2000/svg}"


def operation(name: str, median: float) -> dict:
    return {"operation": name, "median_us": median, "p25_us": median - 1, "p75_us": median + 1}


def line(trace: str | None, layer: int | None, *medians: float, shape: str = "S2,H8,K2,E4,P1",
         ranks: int = 2) -> str:
    measured = {"shape": shape, "tokens": 2, "experts": 4,
                "operations": [operation("plan", 9),
                               *map(operation, plot_skew.OPERATIONS, medians)]}
    return json.dumps({"trace": trace, "layer": layer, "ranks": ranks, "device": "<a> device",
                       "backend": "cuda", "sms": 16, "shapes": [measured]}) + "\n"


class PlotSkewTest(unittest.TestCase):

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def trace(self, name: str, shape: list[int], dtype: str, form: str,
              routes: list[int]) -> pathlib.Path:
        data = struct.pack(f"<{len(routes)}{form}", *routes)
        other = bytes(3)  # an odd offset
        header = json.dumps({
            "other": {"dtype": "U8", "shape": [3], "data_offsets": [0, 3]},
            "topk_experts": {"dtype": dtype, "shape": shape, "data_offsets": [3, 3 + len(data)]},
        }).encode()
        path = self.folder / name
        path.write_bytes(struct.pack("<Q", len(header)) + header + other + data)
        return path

    def run_main(self, lines: str, *arguments: str) -> tuple[int, str, str]:
        path = self.folder / "bench.jsonl"
        path.write_text(lines, encoding="utf-8")
        out, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            status = plot_skew.main(["--traces", str(self.folder), *arguments, str(path)])
        return status, out.getvalue(), errors.getvalue()

    def test_skew_of_a_layer_counts_each_ranks_first_tokens(self) -> None:
        # Two layers of six tokens on two ranks; of each rank's three tokens two are taken.
        path = self.trace("t", [2, 6, 2], "U8", "B",
                          [3, 3] * 6 + [0, 1, 1, 2, 3, 3, 0, 1, 1, 0, 3, 3])
        self.assertEqual(plot_skew.home_skew(path, 1, 2, 2, 4), 7 / 4)
        self.assertEqual(plot_skew.home_skew(path, 0, 2, 2, 4), 2)

    def test_skew_leaves_masked_routes_out(self) -> None:
        path = self.trace("t", [2, 2, 2], "I32", "i", [0, -1, 1, -1, 2, 0, -1, -1])
        self.assertEqual(plot_skew.home_skew(path, None, 2, 2, 4), 3 / 2)

    def chart(self, *lines: str, shape: str | None = None) -> plot_skew.Chart:
        return plot_skew.read_chart(lines, shape, lambda trace, layer, *_: 1 + (layer or 0) / 10)

    def test_takes_the_shape_with_most_points_and_the_last_line_of_each(self) -> None:
        lines = [line("a/t.safetensors", 0, 5, 6, shape="S9"), line("a/t.safetensors", 0, 1, 2),
                 line("a/t.safetensors", 1, 3, 4), line("a/t.safetensors", 0, 7, 8),
                 line(None, None, 100, 100), line("a/u.safetensors", 0, 100)]
        chart = self.chart(*lines)
        self.assertEqual((chart.shape, chart.machine),
                         ("S2,H8,K2,E4,P1", "2 ranks on <a> device, SMs 16"))
        self.assertEqual(
            [(p.trace, p.layer, p.skew, p.operations["combine"]["median_us"])
             for p in chart.points],
            [("t", 0, 1.0, 8), ("t", 1, 1.1, 4)])
        self.assertEqual(self.chart(*lines, shape="S9").shape, "S9")

    def test_other_ranks_are_another_chart(self) -> None:
        chart = self.chart(line("t", 0, 1, 2), line("t", 1, 1, 2), line("t", 0, 3, 4, ranks=8))
        self.assertEqual(len(chart.points), 2)

    def test_scale_ends_at_ticks(self) -> None:
        scale = plot_skew.scale(0, 1620, 400, -300)
        self.assertEqual(scale.ticks(), [0, 500, 1000, 1500, 2000])
        self.assertEqual((scale.at(0), scale.at(2000)), (400, 100))
        self.assertEqual(plot_skew.scale(1, 1, 0, 1).low, 1)

    def test_draws_every_point_twice_and_each_trace_with_a_mark_of_its_own(self) -> None:
        for name in ("t", "u"):
            self.trace(f"{name}.safetensors", [2, 4, 2], "U8", "B", [0, 1, 2, 3] * 3 + [0, 1, 0, 0])
        status, out, _ = self.run_main(
            "".join(line(f"away/{trace}.safetensors", layer, 1500, 1600)
                    for trace in ("t", "u") for layer in (0, 1)))
        self.assertEqual(status, 0)
        root = xml.etree.ElementTree.fromstring(out)
        # Two panels with two layers each, and the legend.
        self.assertEqual(len(root.findall(f"{SVG}circle")), 5)
        self.assertEqual(len(root.findall(f"{SVG}polygon")), 5)
        words = [element.text for element in root.findall(f"{SVG}text")]
        for expected in ("dispatch", "combine", "t", "u", "median time of the slowest rank (µs)",
                         "2 ranks on <a> device, SMs 16"):
            self.assertIn(expected, words)

    def test_says_what_is_missing(self) -> None:
        for lines, words in ((line(None, None, 1, 2), "no line has"),
                             (line("away/none.safetensors", 0, 1, 2), "none.safetensors")):
            with self.subTest(words=words):
                status, out, errors = self.run_main(lines)
                self.assertEqual((status, out), (1, ""))
                self.assertIn(words, errors)


if __name__ == "__main__":
    unittest.main()
