#!/usr/bin/env python3
"""Draws the dashboard skillrund.json as SVG, with the data of a Prometheus.

usage: draw.py PROMETHEUS_URL MINUTES >dashboard.svg

It asks the Prometheus for the queries of each panel over the last minutes, as Grafana does, with all instances and
tenants selected. It needs no Grafana and no packages. make dashboard starts a Prometheus and runs it.
"""

import json
import pathlib
import re
import sys
import time
import urllib.parse
import urllib.request
from xml.sax.saxutils import escape

POINTS = 48  # of each line
RATE_INTERVAL = "30s"  # for Prometheuses that scrape once a second
COLUMN, ROW = 46, 21  # pixels of a unit of gridPos
WIDTH = 24 * COLUMN
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a6d00", "#555555"]
MOST_SERIES = len(COLOURS)


def fetch(url, expr, begin, end):
    """Returns the series of a query: their labels, and their values by time."""
    query = {"query": expr, "start": begin, "end": end, "step": (end - begin) / POINTS}
    with urllib.request.urlopen(f"{url}/api/v1/query_range?{urllib.parse.urlencode(query)}") as answer:
        found = json.load(answer)["data"]["result"]
    return [(s["metric"], {float(t): float(v) for t, v in s["values"] if v not in ("NaN", "+Inf", "-Inf")}) for s in found]


def series(panel, url, begin, end):
    """Returns the lines of a panel: a name and values by time, largest last value first."""
    lines = []
    for target in panel["targets"]:
        expr = target["expr"].replace("$instance", ".*").replace("$tenant", ".*").replace("$__rate_interval", RATE_INTERVAL)
        for labels, values in fetch(url, expr, begin, end):
            if values:
                name = re.sub(r"{{(\w+)}}", lambda m: labels.get(m[1], ""), target["legendFormat"])
                lines.append((name.strip(), values))
    return lines


def text_of(value, unit):
    """Returns a value with its unit, as short as Grafana shows it."""
    if unit == "percentunit":
        return f"{value * 100:.3g} %"
    if unit == "s":
        return f"{value:.3g} s" if value >= 1 else f"{value * 1000:.3g} ms"
    if unit in ("bytes", "Bps"):
        names = ["B", "KiB", "MiB", "GiB", "TiB"]
        while value >= 1024 and len(names) > 1:
            value, names = value / 1024, names[1:]
        return f"{value:.3g} {names[0]}" + ("/s" if unit == "Bps" else "")
    return f"{value:.3g}" + ("/s" if unit == "ops" else "")


def text(x, y, content, **attributes):
    more = "".join(f' {k.replace("_", "-")}="{v}"' for k, v in attributes.items())
    return f'<text x="{x:g}" y="{y:g}"{more}>{escape(content)}</text>'


def short(points):
    """Returns the points as text, without those within a horizontal line."""
    kept = [p for i, p in enumerate(points) if not 0 < i < len(points) - 1 or not points[i - 1][1] == p[1] == points[i + 1][1]]
    return " ".join(f"{x},{y}" for x, y in kept)


def plot(lines, stacked, x, y, width, height, begin, end, top):
    """Draws lines into a rectangle, whose upper edge is the value top."""
    below = {}
    for i, (_, values) in enumerate(lines):
        points, floor = [], []
        for t, v in sorted(values.items()):
            at = round(x + (t - begin) / (end - begin) * width)
            base = below.get(t, 0) if stacked else 0
            points.append((at, round(y + height - (base + v) / top * height)))
            floor.append((at, round(y + height - base / top * height)))
            if stacked:
                below[t] = base + v
        colour = COLOURS[i]
        if stacked:
            yield f'<polygon fill="{colour}" fill-opacity=".5" points="{short(points)} {short(floor[::-1])}"/>'
        yield f'<polyline fill="none" stroke="{colour}" points="{short(points)}"/>'


def legend(lines, x, y, width):
    """Draws the names of the lines, as many as fit into two rows."""
    at, row = x, 0
    for i, (name, _) in enumerate(lines):
        need = 22 + 6.2 * len(name)
        if at + need > x + width and at > x:
            at, row = x, row + 1
        if row > 1:
            return
        yield f'<path stroke="{COLOURS[i]}" stroke-width="3" d="M{at:g} {y + 12 * row - 3:g}h10"/>' + text(at + 13, y + 12 * row, name)
        at += need


def draw(panel, url, begin, end):
    """Draws one panel, or the title of a row of panels."""
    grid = panel["gridPos"]
    x, y, width, height = grid["x"] * COLUMN, grid["y"] * ROW, grid["w"] * COLUMN, grid["h"] * ROW
    if panel["type"] == "row":
        yield text(x + 6, y + 15, panel["title"], font_weight="bold", font_size=13)
        return
    defaults = panel["fieldConfig"]["defaults"]
    lines, unit = series(panel, url, begin, end), defaults.get("unit", "none")
    stacked = "stacking" in defaults["custom"]
    # The largest lines of too many.
    lines = sorted(lines, key=lambda line: -max(line[1].values()))[:MOST_SERIES]
    totals = {}
    for _, values in lines:
        for t, v in values.items():
            totals[t] = totals.get(t, 0) + v if stacked else max(totals.get(t, 0), v)
    top = max(totals.values(), default=0) * 1.05 or 1
    yield f'<rect x="{x + 3}" y="{y + 3}" width="{width - 6}" height="{height - 6}" rx="3" fill="#fff" stroke="#ddd"/>'
    yield text(x + 12, y + 19, panel["title"], font_weight="bold")
    left, upper, wide, high = x + 62, y + 28, width - 76, height - 78
    for part in (0, 0.5, 1):
        at = upper + high * (1 - part)
        yield f'<path stroke="#eee" d="M{left} {at:g}h{wide}"/>' + text(left - 4, at + 4, text_of(top * part, unit), text_anchor="end", fill="#555")
    for minutes in range(int((end - begin) / 60) + 1):
        at = left + wide * (1 - minutes * 60 / (end - begin))
        yield text(at, upper + high + 13, f"-{minutes} min" if minutes else "now", text_anchor="middle", fill="#555")
    yield from plot(lines, stacked, left, upper, wide, high, begin, end, top)
    yield from legend(lines, x + 12, upper + high + 29, width - 24)
    if not lines:
        yield text(left + wide / 2, upper + high / 2, "no data", text_anchor="middle", fill="#555")


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__.split("\n\n")[1])
    url, minutes = sys.argv[1].rstrip("/"), float(sys.argv[2])
    dashboard = json.loads((pathlib.Path(__file__).parent / "skillrund.json").read_text())
    end = time.time()
    begin = end - 60 * minutes
    height = max(p["gridPos"]["y"] + p["gridPos"]["h"] for p in dashboard["panels"]) * ROW
    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="10">')
    print(f'<rect width="{WIDTH}" height="{height}" fill="#f4f5f5"/>')
    for panel in dashboard["panels"]:
        for line in draw(panel, url, begin, end):
            print(line)
    print("</svg>")


if __name__ == "__main__":
    main()
