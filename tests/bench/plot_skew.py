#!/usr/bin/python3
"""Draws what `perigee bench --trace` measured, over how uneven the routes were at home, as SVG.

usage: plot_skew.py [--traces DIR] [--shape SHAPE] BENCH_JSONL >OUT.svg

BENCH_JSONL has a line of `perigee bench --json` for each call: bench.jsonl of tests/device/run.sh.
Of the calls alike in machine, ranks, SMs and shape, those with most points are drawn; --shape names
another shape, as in the lines. A point is one layer of one trace, by the last line that has it.
Skew is the busiest rank's routes over the mean if every expert were computed at home. It is counted
from the trace, which is looked for in --traces (default: the folder that PERIGEE_SHARED_DATA names,
else ../shared/data beside the checkout), then where the line says.
"""

import argparse
import array
import collections
import dataclasses
import json
import os
import pathlib
import struct
import sys
from typing import Any, Callable, Iterable

from svg_chart import (COLOURS, HEIGHT, MARKS, PANEL_HEIGHT, PANEL_LEFT, PANEL_TOP, PANEL_WIDTH,
                       Scale, document, line, mark, panel_frame, scale, text)

OPERATIONS = ("dispatch", "combine")
# Integer types of a safetensors file.
FORMATS = {"U8": "B", "I8": "b", "U16": "H", "I16": "h", "U32": "I", "I32": "i", "U64": "Q",
           "I64": "q"}


@dataclasses.dataclass(frozen=True)
class Point:
    trace: str
    layer: int
    skew: float
    operations: dict[str, dict[str, Any]]  # by name, as in the JSON


@dataclasses.dataclass(frozen=True)
class Chart:
    machine: str
    shape: str
    points: list[Point]


def home_skew(path: pathlib.Path, layer: int | None, ranks: int, tokens: int,
              experts: int) -> float:
    """Of the first `tokens` of each rank, cut as `perigee plan` does."""
    with path.open("rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))["topk_experts"]
        begin, end = header["data_offsets"]
        file.seek(8 + size + begin)
        routes = array.array(FORMATS[header["dtype"]], file.read(end - begin))
    if layer is not None:
        count = len(routes) // header["shape"][0]
        routes = routes[layer * count:(layer + 1) * count]
    of_rank = len(routes) // ranks
    load = [0] * ranks
    for rank in range(ranks):
        first = rank * of_rank
        counts = collections.Counter(routes[first:first + tokens * header["shape"][-1]])
        for expert, count in counts.items():
            if expert >= 0:
                load[expert * ranks // experts] += count
    return max(load) * ranks / sum(load)


def read_chart(lines: Iterable[str], shape: str | None, skew_of: Callable[..., float]) -> Chart:
    """skew_of: home_skew, but of a trace as the line names it."""
    charts: dict[tuple[str, str], dict[tuple[str, int], Point]] = collections.defaultdict(dict)
    for line in lines:
        call = json.loads(line)
        if call["trace"] is None:
            continue
        # Which one of its kind it was, in brackets, is no matter of a plot.
        machine = f"{call['ranks']} ranks on {call['device'].split(' (')[0]}"
        if call["backend"] == "cuda":
            machine += f", SMs {call['sms'] or 'default'}"
        for measured in call["shapes"]:
            operations = {entry["operation"]: entry for entry in measured["operations"]}
            if not all(name in operations for name in OPERATIONS):
                continue
            if shape in (None, measured["shape"]):
                trace, layer = pathlib.Path(call["trace"]).stem, call["layer"] or 0
                skew = skew_of(call["trace"], call["layer"], call["ranks"], measured["tokens"],
                               measured["experts"])
                charts[machine, measured["shape"]][trace, layer] = Point(
                    trace, layer, skew, operations)
    if not charts:
        raise ValueError("no line has dispatch and combine of a trace"
                         + (f" at {shape}" if shape else ""))
    (machine, found), points = max(charts.items(), key=lambda item: len(item[1]))
    return Chart(machine, found, [points[key] for key in sorted(points)])


def panel(chart: Chart, operation: str, marks: dict[str, tuple[str, str]], x: Scale,
          y: Scale) -> list[str]:
    parts = panel_frame(operation, "skew at home: busiest rank's routes over the mean (ratio)",
                        [(x.at(tick), f"{tick:.6g}") for tick in x.ticks()], x.start, y)
    numbers = []  # on top of all marks
    for point in chart.points:
        shape, colour = marks[point.trace]
        times = point.operations[operation]
        at_x, at_y = x.at(point.skew), y.at(times["median_us"])
        parts.append(line(at_x, at_x, y.at(times["p25_us"]), y.at(times["p75_us"]),
                          f'stroke="{colour}" stroke-width="2"'))
        parts.append(mark(shape, at_x, at_y, colour))
        below = MARKS.index(shape) % 2  # points of two traces lie close to each other
        numbers.append(text(at_x, at_y + (24 if below else -13), str(point.layer),
                            'class="small middle number"'))
    return parts + numbers


def draw(chart: Chart) -> str:
    traces = sorted({point.trace for point in chart.points})
    if len(traces) > len(MARKS):
        raise ValueError(f"{len(traces)} traces, expected at most {len(MARKS)}")
    marks = {trace: (MARKS[i], COLOURS[i]) for i, trace in enumerate(traces)}
    longest = max(p.operations[name][key] for p in chart.points for name in OPERATIONS
                  for key in ("median_us", "p75_us"))
    y = scale(0, longest, PANEL_TOP + PANEL_HEIGHT, -PANEL_HEIGHT)
    skews = [point.skew for point in chart.points]
    parts: list[str] = []
    for operation, left in zip(OPERATIONS, PANEL_LEFT):
        parts += panel(chart, operation, marks, scale(1, max(skews), left, PANEL_WIDTH), y)
    at = float(PANEL_LEFT[0])
    for trace in traces:
        parts += [mark(marks[trace][0], at + 8, HEIGHT - 25, marks[trace][1]),
                  text(at + 24, HEIGHT - 20, trace)]
        at += 50 + 9 * len(trace)
    parts.append(text(at, HEIGHT - 20, "number: layer; bar: quartiles"))
    return document(f"Time by skew of the routes: {chart.shape}", chart.machine,
                    "median time of the slowest rank (µs)", parts)


def main(arguments: list[str]) -> int:
    checkout = pathlib.Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(
        usage=argparse.SUPPRESS, description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=pathlib.Path, default=os.environ.get(
        "PERIGEE_SHARED_DATA", checkout.parent / "shared" / "data"))
    parser.add_argument("--shape")
    parser.add_argument("lines", metavar="BENCH_JSONL", type=pathlib.Path)
    given = parser.parse_args(arguments)

    def skew_of(trace: str, *more: Any) -> float:
        beside = pathlib.Path(given.traces) / pathlib.Path(trace).name
        return home_skew(beside if beside.exists() else pathlib.Path(trace), *more)

    try:
        with given.lines.open(encoding="utf-8") as lines:
            sys.stdout.write(draw(read_chart(lines, given.shape, skew_of)))
    except (OSError, ValueError) as error:
        print(f"plot_skew.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
