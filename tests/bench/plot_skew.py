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
import html
import json
import math
import os
import pathlib
import struct
import sys
from typing import Any, Callable, Iterable

OPERATIONS = ("dispatch", "combine")
MARKS = ("circle", "square", "triangle", "diamond")
COLOURS = ("#0b5fa5", "#c2410c", "#3f7d20", "#6b3fa0")
WIDTH, HEIGHT = 1000, 520
PANEL_WIDTH, PANEL_HEIGHT, PANEL_TOP = 400, 310, 110
PANEL_LEFT = (90, 560)
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


def tick_step(span: float, most: int = 6) -> float:
    """1, 2 or 5 times a power of ten, so that no more than `most` steps fit into the span."""
    step = 10.0 ** -9
    while True:
        for factor in (1, 2, 5):
            if span / (step * factor) <= most:
                return step * factor
        step *= 10


def text(x: float, y: float, words: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {more}>{html.escape(words)}</text>'


def mark(shape: str, x: float, y: float, colour: str) -> str:
    if shape == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="7" fill="{colour}"/>'
    corners = {"square": ((-6, -6), (6, -6), (6, 6), (-6, 6)),
               "triangle": ((0, -7), (7, 6), (-7, 6)),
               "diamond": ((0, -8), (8, 0), (0, 8), (-8, 0))}[shape]
    points = " ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in corners)
    return f'<polygon points="{points}" fill="#ffffff" stroke="{colour}" stroke-width="2"/>'


def line(x1: float, x2: float, y1: float, y2: float, more: str) -> str:
    return f'<line x1="{x1:.1f}" x2="{x2:.1f}" y1="{y1:.1f}" y2="{y2:.1f}" {more}/>'


@dataclasses.dataclass(frozen=True)
class Scale:
    low: float
    high: float
    step: float
    start: float  # pixels
    length: float  # negative: upwards

    def at(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * self.length

    def ticks(self) -> list[float]:
        steps = round((self.high - self.low) / self.step)
        return [self.low + self.step * i for i in range(steps + 1)]


def scale(low: float, high: float, start: float, length: float) -> Scale:
    """From `low` down to a tick and from `high` up to one."""
    step = tick_step((high - low) or 1)
    first, last = math.floor(low / step) * step, math.ceil(high / step) * step
    return Scale(first, max(last, first + step), step, start, length)


def panel(chart: Chart, operation: str, marks: dict[str, tuple[str, str]], x: Scale,
          y: Scale) -> list[str]:
    left, right, bottom = x.start, x.start + x.length, y.start
    parts = [text(left + x.length / 2, PANEL_TOP - 14, operation, 'class="middle title"')]
    for tick in y.ticks():
        parts.append(line(left, right, y.at(tick), y.at(tick), 'class="grid"'))
        parts.append(text(left - 8, y.at(tick) + 5, f"{tick:,.6g}", 'class="end"'))
    for tick in x.ticks():
        parts.append(line(x.at(tick), x.at(tick), bottom, bottom + 6, 'class="axis"'))
        parts.append(text(x.at(tick), bottom + 24, f"{tick:.6g}", 'class="middle"'))
    parts.append(f'<path d="M{left},{PANEL_TOP} V{bottom} H{right}" fill="none" class="axis"/>')
    parts.append(text(left + x.length / 2, bottom + 52,
                      "skew at home: busiest rank's routes over the mean (ratio)",
                      'class="middle"'))
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
    parts = [text(PANEL_LEFT[0], 30, f"Time by skew of the routes: {chart.shape}", 'class="title"'),
             text(PANEL_LEFT[0], 54, chart.machine, 'class="small"'),
             text(0, 0, "median time of the slowest rank (µs)",
                  'class="middle" transform="translate('
                  f'22 {PANEL_TOP + PANEL_HEIGHT / 2}) rotate(-90)"')]
    for operation, left in zip(OPERATIONS, PANEL_LEFT):
        parts += panel(chart, operation, marks, scale(1, max(skews), left, PANEL_WIDTH), y)
    at = float(PANEL_LEFT[0])
    for trace in traces:
        parts += [mark(marks[trace][0], at + 8, HEIGHT - 25, marks[trace][1]),
                  text(at + 24, HEIGHT - 20, trace)]
        at += 50 + 9 * len(trace)
    parts.append(text(at, HEIGHT - 20, "number: layer; bar: quartiles"))
    style = ("text{font:15px sans-serif;fill:#1a1a1a} .title{font-size:18px;font-weight:bold} "
             ".small{font-size:14px} .number{paint-order:stroke;stroke:#ffffff;stroke-width:3px} "
             ".middle{text-anchor:middle} .end{text-anchor:end} "
             ".grid{stroke:#d8d8d8} .axis{stroke:#1a1a1a}")
    size = f'width="{WIDTH}" height="{HEIGHT}"'
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" {size}>'
            f'<style>{style}</style>\n<rect {size} fill="#ffffff"/>\n'
            + "\n".join(parts) + "\n</svg>\n")


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
