#!/usr/bin/python3
"""Tables of what the paths of rows take, in Markdown, from runs of `perigee bench direct` and `pull`.

usage: path_table.py BENCH_JSONL... >OUT.md

A line of a file is one call of `perigee bench ... --json`, a fresh process of the command and of its
workers: paths.jsonl of tests/device/run.sh. Calls alike in machine, ranks, SMs, shape and routes are
one row: the mean of their means, and the standard deviation of these (0.00 of a single one). A call
whose rows came out wrong counts for no mean: its row says how many of its processes failed, and the
exit status is 1. Beside it, where there is the same shape and skew, what the proposal of direct publication measured on four
GB200 with CUDA graphs: another machine, another library, so a reminder and no goal.
"""

import argparse
import collections
import json
import statistics
import sys
from typing import Any, Iterable

# (H, K, skew): ordinary ready view, owner-pull; S 8192, E 896, 4 x GB200, us.
PULL_OF_PROPOSAL = {
    (3584, 8, 0.1): (633.86, 285.50), (3584, 8, 1.0): (626.64, 286.02),
    (3584, 8, 5.0): (603.78, 362.96), (3584, 16, 0.1): (967.70, 338.72),
    (3584, 16, 1.0): (964.76, 338.34), (3584, 16, 5.0): (950.50, 404.12),
    (7168, 8, 0.1): (799.42, 559.52), (7168, 8, 1.0): (790.80, 554.22),
    (7168, 8, 5.0): (761.72, 722.88), (7168, 16, 0.1): (1240.40, 667.34),
    (7168, 16, 1.0): (1227.20, 669.74), (7168, 16, 5.0): (1196.40, 784.88),
}
# The same of: local producer and dispatch, overlapped direct-out.
DIRECT_OF_PROPOSAL = {
    (3584, 8, 0.1): (588.26, 327.96), (3584, 8, 1.0): (586.13, 327.04),
    (3584, 8, 5.0): (572.82, 335.13), (3584, 16, 0.1): (807.57, 533.08),
    (3584, 16, 1.0): (802.60, 531.94), (3584, 16, 5.0): (786.99, 528.81),
    (7168, 8, 0.1): (863.49, 612.54), (7168, 8, 1.0): (860.31, 611.89),
    (7168, 8, 5.0): (849.06, 633.65), (7168, 16, 0.1): (1120.93, 1011.13),
    (7168, 16, 1.0): (1109.75, 1012.44), (7168, 16, 5.0): (1086.70, 1000.49),
}
PROPOSAL_SHAPE = (8192, 896)  # S, E

# By what was run: its title, the ordinary figure, the others, and the proposal's two.
KINDS = {
    "direct": ("Producer direct-out", "produce_dispatch", ("direct", "direct_overlapped"),
               DIRECT_OF_PROPOSAL),
    "pull": ("Owner-pull", "dispatch", ("pull",), PULL_OF_PROPOSAL),
}
SUFFIXES = (("_back_to_back", "back to back"), ("", "behind a barrier"))


class Cell:
    """Of calls that measured the same."""

    def __init__(self) -> None:
        self.means: dict[str, list[float]] = collections.defaultdict(list)
        self.choices: collections.Counter[str] = collections.Counter()
        self.imbalances: list[float] = []
        self.processes = 0
        self.failed = 0

    def fail(self, shape: dict[str, Any]) -> None:
        self.imbalances.append(shape["home_imbalance"])
        self.failed += 1

    def add(self, shape: dict[str, Any]) -> None:
        for operation in shape["operations"]:
            self.means[operation["operation"]].append(operation["mean_us"])
        self.imbalances.append(shape["home_imbalance"])
        self.processes += 1
        if shape.get("choice"):
            self.choices[shape["choice"]["path"]] += 1

    def mean(self, name: str) -> float | None:
        return statistics.fmean(self.means[name]) if name in self.means else None

    def spread(self, name: str) -> float:
        return statistics.stdev(self.means[name]) if len(self.means[name]) > 1 else 0.0

    def count(self) -> str:
        return f"{self.processes}, {self.failed} FAILED" if self.failed else str(self.processes)

    def choice(self) -> str:
        if len(self.choices) <= 1:
            return next(iter(self.choices), "-")
        return ", ".join(f"{path} {count}x" for path, count in self.choices.most_common())


def read_cells(lines: Iterable[tuple[str, str]]) -> dict[tuple[Any, ...], Cell]:
    """lines: where each is, and its text. Keys: (what, machine, routes, S, H, K, E)."""
    cells: dict[tuple[Any, ...], Cell] = collections.defaultdict(Cell)
    for where, line in lines:
        try:
            run = json.loads(line)
            if run["what"] not in KINDS:
                continue
            if run["result"] not in ("PASS", "FAIL"):
                raise ValueError(f"its result is {run['result']!r}, expected PASS or FAIL")
            machine = (run["device"], run["backend"], run["ranks"], run["shared_memory"],
                       run["sms"], run["local_sms"])
            routes = (run["trace"] or "", -1 if run["layer"] is None else run["layer"],
                      -1.0 if run["skew"] is None else run["skew"])
            for shape in run["shapes"]:
                sizes = (shape["tokens"], shape["hidden"], shape["topk"], shape["experts"])
                cell = cells[run["what"], machine, routes, *sizes]
                # The other shapes of a call with a wrong one are sound.
                if shape["mismatched_elements"]:
                    cell.fail(shape)
                else:
                    cell.add(shape)
        except (ValueError, KeyError, TypeError) as error:
            raise SystemExit(f"path_table.py: {where}: no line of `perigee bench --json`: "
                             f"{error!r}") from error
    return cells


def describe_machine(machine: tuple[Any, ...]) -> str:
    device, backend, ranks, shared, sms, local_sms = machine
    where = "that share it" if shared else "one each"
    budget = f", SMs {sms or 'default'}, local SMs {local_sms or 'default'}"
    return f"{ranks} ranks, {device} {where} ({backend}{budget if backend == 'cuda' else ''})"


def describe_routes(routes: tuple[Any, ...]) -> str:
    trace, layer, skew = routes
    if not trace:
        return "uniform" if skew < 0 else f"{skew:g}"
    name = trace.rsplit("/", 1)[-1].removesuffix(".safetensors")
    return name if layer < 0 else f"{name}:{layer}"


def proposal_columns(kind: str, routes: tuple[Any, ...], sizes: tuple[int, ...]) -> list[str]:
    tokens, hidden, topk, experts = sizes
    known = KINDS[kind][3].get((hidden, topk, routes[2]))
    if known is None or routes[0] or (tokens, experts) != PROPOSAL_SHAPE:
        return ["-", "-"]
    ordinary, path = known
    return [f"{ordinary:.2f} / {path:.2f}", f"{100 * (1 - path / ordinary):.2f} %"]


def format_table(kind: str, suffix: str, rows: list[tuple[tuple[Any, ...], Cell]]) -> str:
    _, ordinary, paths, _ = KINDS[kind]
    header = ["S", "H", "K", "E", "routes", "imbalance", ordinary, "SD"]
    for path in paths:
        header += [path, "SD", "saving", ""]
    header += ["processes", "choice", "GB200 ordinary / path", "GB200 saving"]
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    for (_, _, routes, *sizes), cell in rows:
        base = cell.mean(ordinary + suffix)
        if base is None and not cell.failed:
            continue
        row = [str(size) for size in sizes]
        row += [describe_routes(routes), f"{statistics.fmean(cell.imbalances):.2f}"]
        row += ["-"] * 2 if base is None else [f"{base:.2f}",
                                               f"{cell.spread(ordinary + suffix):.2f}"]
        for path in paths:
            time = cell.mean(path + suffix)
            if base is None or time is None:
                row += ["-"] * 4
                continue
            row += [f"{time:.2f}", f"{cell.spread(path + suffix):.2f}", f"{base - time:.2f}",
                    f"{100 * (1 - time / base):.2f} %"]
        row += [cell.count(), cell.choice()]
        row += proposal_columns(kind, routes, tuple(sizes))
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines) + "\n"


def format_tables(cells: dict[tuple[Any, ...], Cell]) -> str:
    text = ""
    for kind, machine in sorted({key[:2] for key in cells}, key=repr):
        rows = sorted(((key, cell) for key, cell in cells.items() if key[:2] == (kind, machine)),
                      key=lambda row: (row[0][3:], row[0][2]))
        for suffix, how in SUFFIXES:
            text += f"### {KINDS[kind][0]}, {how}: {describe_machine(machine)}\n\n"
            text += f"Means of the slowest rank in us.\n\n{format_table(kind, suffix, rows)}\n"
    return text


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="BENCH_JSONL")
    options = parser.parse_args(arguments)
    lines = []
    for name in options.files:
        try:
            with open(name, encoding="utf-8") as file:
                lines += [(f"{name}, line {number}", line) for number, line in enumerate(file, 1)
                          if line.strip()]
        except OSError as error:
            raise SystemExit(f"path_table.py: cannot read {name}: {error.strerror}") from error
    cells = read_cells(lines)
    if not cells:
        raise SystemExit("path_table.py: no line of `perigee bench direct` or `pull`")
    sys.stdout.write(format_tables(cells))
    failed = sum(cell.failed for cell in cells.values())
    if failed:
        print(f"path_table.py: rows came out wrong in {failed} measurements", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
