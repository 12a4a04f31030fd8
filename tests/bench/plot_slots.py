#!/usr/bin/python3
"""Draws what `perigee bench layer` measured by slots of a rank (B), as SVG: is prefetching worth it?

usage: plot_slots.py BENCH_JSONL >OUT.svg

BENCH_JSONL has a line of `perigee bench layer --json` for each call, or only the keys used here. The
shapes of one machine that are alike but for B are drawn, those with most B where there are several;
of one B the last line counts. B 0 must be among them: experts then compute from the weights where
they are, and the right panel holds against it what a prefetch takes and what it saves them.
Prefetching is worth it from the B on where it saves more than it takes: the crossover.
"""

import argparse
import collections
import dataclasses
import json
import pathlib
import re
import sys
from typing import Iterable

from svg_chart import (COLOURS, HEIGHT, MARKS, PANEL_HEIGHT, PANEL_LEFT, PANEL_TOP, PANEL_WIDTH,
                       Scale, document, line, mark, panel_frame, scale, text)

OPERATIONS = ("prefetch_weights", "run_experts", "layer")


@dataclasses.dataclass(frozen=True)
class Sweep:
    machine: str
    shape: str  # without B
    all_slots: int  # E/R
    medians: dict[int, dict[str, float]]  # by B, ascending: us by operation

    def taken(self, slots: int) -> float:
        return self.medians[slots]["prefetch_weights"]

    def saved(self, slots: int) -> float:
        return self.medians[0]["run_experts"] - self.medians[slots]["run_experts"]

    def crossover(self) -> int | None:
        """The least B from which on every measured one saves more than it takes."""
        found = None
        for slots in self.medians:
            if slots == 0:
                continue
            if self.saved(slots) <= self.taken(slots):
                found = None
            elif found is None:
                found = slots
        return found


def read_sweep(lines: Iterable[str]) -> Sweep:
    found: dict[tuple[str, str, int], dict[int, dict[str, float]]] = collections.defaultdict(dict)
    for entry in lines:
        call = json.loads(entry)
        machine = f"{call['ranks']} ranks on {call['device'].split(' (')[0]}"
        if call["backend"] == "cuda":
            machine += f", SMs {call['sms'] or 'default'}"
        for measured in call["shapes"]:
            medians = {operation["operation"]: operation["median_us"]
                       for operation in measured["operations"]}
            if all(name in medians for name in OPERATIONS):
                shape = re.sub(r",B\d+", "", measured["shape"])
                all_slots = measured["experts"] // call["ranks"]
                found[machine, shape, all_slots][measured["slots"]] = medians
    found = {key: sweep for key, sweep in found.items() if 0 in sweep and len(sweep) > 1}
    if not found:
        raise ValueError("no shape has prefetch_weights, run_experts and layer of B 0 and another B")
    (machine, shape, all_slots), medians = max(found.items(), key=lambda item: len(item[1]))
    return Sweep(machine, shape, all_slots, dict(sorted(medians.items())))


def curve(values: list[float], ticks: list[float], y: Scale, number: int) -> list[str]:
    """Through its marks; what each stands for is not proportional to its place."""
    colour = COLOURS[number]
    places = list(zip(ticks, map(y.at, values)))
    parts = [line(x1, x2, y1, y2, f'stroke="{colour}" stroke-width="2"')
             for (x1, y1), (x2, y2) in zip(places, places[1:])]
    parts += [mark(MARKS[number], x, at, colour) for x, at in places]
    aside = 24 if number % 2 else -13  # two curves may lie close to each other
    return parts + [text(x, at + aside, f"{value:,.6g}", 'class="small middle number"')
                    for (x, at), value in zip(places, values)]


def draw(sweep: Sweep) -> str:
    slots = list(sweep.medians)
    panels = (
        ("the layer", ["layer", "prefetch_weights + run_experts"],
         [[sweep.medians[b]["layer"] for b in slots],
          [sweep.taken(b) + sweep.medians[b]["run_experts"] for b in slots]]),
        ("prefetch against reads in place", ["what the prefetch takes", "what it saves run_experts"],
         [[sweep.taken(b) for b in slots], [sweep.saved(b) for b in slots]]),
    )
    parts: list[str] = []
    for (title, names, curves), left, first in zip(panels, PANEL_LEFT, (0, 2)):
        values = [value for one in curves for value in one]
        y = scale(min(0, *values), max(values), PANEL_TOP + PANEL_HEIGHT, -PANEL_HEIGHT)
        ticks = [left + PANEL_WIDTH * (i + 0.5) / len(slots) for i in range(len(slots))]
        words = [f"{b} (E/R)" if b == sweep.all_slots else str(b) for b in slots]
        parts += panel_frame(title, "B: slots of a rank", list(zip(ticks, words)), left, y)
        at = float(left)
        for number, (name, one) in enumerate(zip(names, curves), first):
            parts += curve(one, ticks, y, number)
            parts += [mark(MARKS[number], at + 8, HEIGHT - 25, COLOURS[number]),
                      text(at + 22, HEIGHT - 20, name)]
            at += 40 + 8 * len(name)
    crossover = sweep.crossover()
    verdict = "no crossover" if crossover is None else f"crossover at B {crossover}"
    return document(f"Time by slots: {sweep.shape}", f"{sweep.machine}; {verdict}",
                    "median time of the slowest rank (µs)", parts)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        usage=argparse.SUPPRESS, description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lines", metavar="BENCH_JSONL", type=pathlib.Path)
    given = parser.parse_args(arguments)
    try:
        with given.lines.open(encoding="utf-8") as lines:
            sys.stdout.write(draw(read_sweep(lines)))
    except (OSError, ValueError, KeyError) as error:
        print(f"plot_slots.py: {error!r}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
