#!/usr/bin/python3
"""Tests of path_table.py on made-up lines shaped as those of `perigee bench --json`."""

import contextlib
import io
import json
import pathlib
import tempfile
import unittest

import path_table


def line(what: str, means: dict[str, float], *, skew: float | None = 1, hidden: int = 3584,
         choice: str | None = "pull", wrong: int = 0, **other: object) -> str:
    shape = {"tokens": 8192, "hidden": hidden, "topk": 8, "experts": 896, "home_imbalance": 1.25,
             "mismatched_elements": wrong,
             "operations": [{"operation": name, "mean_us": mean} for name, mean in means.items()],
             "choice": {"path": choice, "reason": "x"} if choice else None}
    run = {"what": what, "device": "GPU", "backend": "cuda", "ranks": 4, "shared_memory": True,
           "sms": 16, "local_sms": 0, "trace": None, "layer": None, "skew": skew,
           "result": "FAIL" if wrong else "PASS", "shapes": [shape]}
    return json.dumps(run | other)


class PathTableTest(unittest.TestCase):

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_main(self, *files: list[str]) -> str:
        names = []
        for number, lines in enumerate(files):
            path = self.folder / f"{number}.jsonl"
            path.write_text("\n".join(lines) + "\n", encoding="utf-8")
            names.append(str(path))
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            self.status = path_table.main(names)
        self.messages = err.getvalue()
        return out.getvalue()

    def rows(self, text: str) -> list[list[str]]:
        return [[cell.strip() for cell in row.split("|")[1:-1]] for row in text.splitlines()
                if row.startswith("| 8192")]

    def test_processes_of_a_cell_are_one_row(self) -> None:
        means = [{"dispatch_back_to_back": 600.0, "pull_back_to_back": 300.0, "dispatch": 700.0,
                  "pull": 350.0},
                 {"dispatch_back_to_back": 620.0, "pull_back_to_back": 304.0, "dispatch": 700.0,
                  "pull": 350.0}]
        text = self.run_main([line("pull", means[0])], [line("pull", means[1])])
        self.assertIn("### Owner-pull, back to back: 4 ranks, GPU that share it (cuda, SMs 16, "
                      "local SMs default)", text)
        back_to_back, behind = self.rows(text)
        self.assertEqual(back_to_back, [
            "8192", "3584", "8", "896", "1", "1.25", "610.00", "14.14", "302.00", "2.83", "308.00",
            "50.49 %", "2", "pull", "626.64 / 286.02", "54.36 %"])
        self.assertEqual(behind[6:12], ["700.00", "0.00", "350.00", "0.00", "350.00", "50.00 %"])

    def test_direct_has_both_ways_and_says_where_processes_chose_differently(self) -> None:
        means = {"produce_dispatch_back_to_back": 500.0, "direct_back_to_back": 510.0,
                 "direct_overlapped_back_to_back": 400.0}
        text = self.run_main([line("direct", means, choice="direct_overlapped", skew=0.1),
                              line("direct", means, choice="direct_overlapped", skew=0.1),
                              line("direct", means, choice="ordinary", skew=0.1)])
        (row,) = self.rows(text)
        self.assertEqual(row[8:12], ["510.00", "0.00", "-10.00", "-2.00 %"])
        self.assertEqual(row[12:16], ["400.00", "0.00", "100.00", "20.00 %"])
        self.assertEqual(row[16:18], ["3", "direct_overlapped 2x, ordinary 1x"])
        self.assertEqual(row[18], "588.26 / 327.96")

    def test_other_routes_and_shapes_are_other_rows_without_a_proposal(self) -> None:
        means = {"dispatch_back_to_back": 600.0, "pull_back_to_back": 300.0}
        text = self.run_main([line("pull", means, skew=2), line("pull", means, hidden=128),
                              line("pull", means, skew=None, trace="/a/t.safetensors", layer=3),
                              line("combine", means, wrong=3)])
        rows = self.rows(text)
        self.assertEqual([row[4] for row in rows], ["1", "2", "t:3"])
        self.assertEqual({tuple(row[-2:]) for row in rows}, {("-", "-")})
        self.assertEqual(self.status, 0)

    def test_a_process_that_failed_is_told_and_counts_for_no_mean(self) -> None:
        means = {"dispatch_back_to_back": 600.0, "pull_back_to_back": 300.0}
        wrong = {"dispatch_back_to_back": 6.0, "pull_back_to_back": 3.0}
        both = json.loads(line("pull", wrong, wrong=5, hidden=7168))
        both["shapes"] += json.loads(line("pull", means, hidden=128))["shapes"]
        text = self.run_main([line("pull", means), line("pull", wrong, wrong=5),
                              json.dumps(both)])
        small, some, only, *_ = self.rows(text)
        self.assertEqual(small[12:14], ["1", "pull"], "sound, beside a wrong one")
        self.assertEqual(some[6:14], ["600.00", "0.00", "300.00", "0.00", "300.00", "50.00 %",
                                      "1, 1 FAILED", "pull"])
        self.assertEqual(only[6:14], ["-", "-", "-", "-", "-", "-", "0, 1 FAILED", "-"])
        self.assertEqual(self.status, 1)
        self.assertIn("rows came out wrong in 2 measurements", self.messages)

    def test_what_is_wrong_is_named(self) -> None:
        for text, why in (("{", "0.jsonl, line 1"), ("{}", "KeyError"), ("[]", "line 1"),
                          (line("pull", {}).replace("PASS", "MAYBE"), "expected PASS or FAIL"),
                          (line("combine", {}), "no line of `perigee bench direct` or `pull`")):
            with self.assertRaises(SystemExit) as raised:
                self.run_main([text])
            self.assertIn(why, str(raised.exception))
        with self.assertRaises(SystemExit) as raised:
            path_table.main([str(self.folder / "none")])
        self.assertIn("cannot read", str(raised.exception))


if __name__ == "__main__":
    unittest.main()
