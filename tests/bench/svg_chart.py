"""What the plots of this folder share: scales, marks, axes, and the file around them, as SVG."""

import dataclasses
import html
import math

MARKS = ("circle", "square", "triangle", "diamond")
COLOURS = ("#0b5fa5", "#c2410c", "#3f7d20", "#6b3fa0")
WIDTH, HEIGHT = 1000, 520
PANEL_WIDTH, PANEL_HEIGHT, PANEL_TOP = 400, 310, 110
PANEL_LEFT = (90, 560)


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


def panel_frame(title: str, below: str, x_ticks: list[tuple[float, str]], left: float,
                y: Scale) -> list[str]:
    """Grid, axes and words of one panel; x_ticks: pixels and what stands there."""
    right, bottom = left + PANEL_WIDTH, y.start
    parts = [text(left + PANEL_WIDTH / 2, PANEL_TOP - 14, title, 'class="middle title"')]
    for tick in y.ticks():
        parts.append(line(left, right, y.at(tick), y.at(tick), 'class="grid"'))
        parts.append(text(left - 8, y.at(tick) + 5, f"{tick:,.6g}", 'class="end"'))
    for at, words in x_ticks:
        parts.append(line(at, at, bottom, bottom + 6, 'class="axis"'))
        parts.append(text(at, bottom + 24, words, 'class="middle"'))
    parts.append(f'<path d="M{left},{PANEL_TOP} V{bottom} H{right}" fill="none" class="axis"/>')
    parts.append(text(left + PANEL_WIDTH / 2, bottom + 52, below, 'class="middle"'))
    return parts


def document(title: str, subtitle: str, y_title: str, parts: list[str]) -> str:
    head = [text(PANEL_LEFT[0], 30, title, 'class="title"'),
            text(PANEL_LEFT[0], 54, subtitle, 'class="small"'),
            text(0, 0, y_title, 'class="middle" transform="translate('
                 f'22 {PANEL_TOP + PANEL_HEIGHT / 2}) rotate(-90)"')]
    style = ("text{font:15px sans-serif;fill:#1a1a1a} .title{font-size:18px;font-weight:bold} "
             ".small{font-size:14px} .number{paint-order:stroke;stroke:#ffffff;stroke-width:3px} "
             ".middle{text-anchor:middle} .end{text-anchor:end} "
             ".grid{stroke:#d8d8d8} .axis{stroke:#1a1a1a}")
    size = f'width="{WIDTH}" height="{HEIGHT}"'
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" {size}>'
            f'<style>{style}</style>\n<rect {size} fill="#ffffff"/>\n'
            + "\n".join(head + parts) + "\n</svg>\n")
