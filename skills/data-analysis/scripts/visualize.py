#!/usr/bin/env python3
"""Draw a histogram, scatter, bar or line chart of a CSV or JSON file into a PNG.

Exit codes: 0 done, 1 the file can't be read or written, 2 an option, column
or filter is wrong, 3 pandas or matplotlib is missing.
"""

import argparse
import os
import sys

import table as tables

COLOURS = ("#2f6db3", "#d9822b", "#3a9a5c", "#b3404a", "#7a5fa8", "#7f7f7f")
MAX_SERIES = len(COLOURS)
LONG_LABEL = 24  # characters of a bar's label
MAX_BINS = 60  # that are chosen from the data


def bounded(kind, low, high):
    def parse(text):
        try:
            value = kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text} is not between {low} and {high}")
        return value

    return parse


def options():
    parser = argparse.ArgumentParser(description="Draw a chart of a CSV or JSON file into a PNG.")
    tables.add_input(parser)
    parser.add_argument("--type", required=True, choices=("histogram", "scatter", "bar", "line"))
    parser.add_argument("--x", metavar="COLUMN", help="default: chosen by the type of chart")
    parser.add_argument("--y", metavar="COLUMN[,COLUMN]", help="default: chosen by the type of chart")
    parser.add_argument("--aggregate", choices=("sum", "mean", "count", "min", "max"), help="bar: default sum")
    parser.add_argument("--bins", type=bounded(int, 1, 500), help="histogram: default chosen from the data")
    parser.add_argument("--top", type=bounded(int, 1, 100), default=30, help="bar: the N largest (default: 30)")
    parser.add_argument("--title")
    parser.add_argument("--width", type=bounded(float, 2, 30), default=8, help="inches (default: 8)")
    parser.add_argument("--height", type=bounded(float, 2, 30), default=5, help="inches (default: 5)")
    parser.add_argument("--dpi", type=bounded(int, 50, 300), default=100, help="default: 100")
    parser.add_argument("--output", required=True, metavar="FILE.png")
    return parser


def usage(message):
    return tables.Failure(tables.USAGE_ERROR, message)


def take(candidates, what):
    if not candidates:
        raise usage(f"there is no {what} column to draw")
    return candidates[0]


def choose(args, table):
    """Return (x, [y, ...]), checked, with what was not given filled in."""
    numbers = tables.numeric(table)
    x = args.x
    ys = tables.columns(table, args.y) if args.y else []
    if x is not None:
        tables.column(table, x)
    free = [c for c in numbers if c != x and c not in ys]

    if args.type == "histogram":
        if ys:
            raise usage("a histogram takes --x and no --y")
        x = x or take(numbers, "numeric")
    elif args.type == "scatter":
        x = x or take(free, "numeric")
        ys = ys or [take([c for c in free if c != x], "second numeric")]
        if len(ys) > 1:
            raise usage("a scatter chart takes one --y")
    elif args.type == "bar":
        texts = [c for c in table.columns if c not in numbers and c not in ys]
        x = x or take(texts + free, "usable")
        free = [c for c in free if c != x]
        if not ys and free and args.aggregate != "count":
            ys = free[:1]
    else:
        x = x or take([c for c in table.columns if c not in ys], "usable")
        ys = ys or [c for c in free if c != x][:MAX_SERIES]
        take(ys, "numeric")

    if len({x, *ys}) <= len(ys):
        raise usage("a column is named twice in --x and --y")
    if len(ys) > MAX_SERIES:
        raise usage(f"more than {MAX_SERIES} columns in --y")
    must_be_numbers = {"histogram": [x], "scatter": [x, *ys], "bar": ys, "line": ys}[args.type]
    for name in must_be_numbers:
        if name not in numbers:
            raise usage(f"column {name!r} is not numeric; numeric are: {', '.join(numbers) or 'none'}")
    return x, ys


def bins(values):
    """Choose a number of bins by the rule of Freedman and Diaconis, within bounds."""
    spread = values.quantile(0.75) - values.quantile(0.25)
    width = 2 * spread / len(values) ** (1 / 3)
    wanted = (values.max() - values.min()) / width if width > 0 else 10
    return int(min(max(wanted, 5), MAX_BINS))


def histogram(axes, table, x, _, args):
    axes.hist(table[x], bins=args.bins or bins(table[x]), color=COLOURS[0], edgecolor="white", linewidth=0.5)
    axes.set_ylabel("rows")
    axes.yaxis.get_major_locator().set_params(integer=True)
    return f"Distribution of {x}"


def scatter(axes, table, x, ys, _):
    # With more points, each is smaller and more transparent.
    crowded = len(table) > 500
    axes.scatter(table[x], table[ys[0]], s=12 if crowded else 36, alpha=0.4 if crowded else 0.8, color=COLOURS[0], linewidths=0)
    axes.set_ylabel(ys[0])
    return f"{ys[0]} by {x}"


def bar(axes, table, x, ys, args):
    how = args.aggregate or ("sum" if ys else "count")
    grouped = table.groupby(x, sort=False)
    bars = grouped[ys].agg(how) if ys else grouped.size().to_frame("rows")
    total = len(bars)
    if total > args.top:
        largest = bars.iloc[:, 0].sort_values(ascending=False, kind="stable").index[: args.top]
        bars = bars.loc[[i for i in bars.index if i in set(largest)]]
        print(f"bars drawn: the {args.top} largest of {total}")
    width = 0.8 / len(bars.columns)
    for i, name in enumerate(bars.columns):
        offset = (i - (len(bars.columns) - 1) / 2) * width
        axes.bar([p + offset for p in range(len(bars))], bars[name], width, color=COLOURS[i], label=name)
    labels = [str(tables.plain(v)) for v in bars.index]
    labels = [v if len(v) <= LONG_LABEL else v[: LONG_LABEL - 1] + "…" for v in labels]
    tilted = sum(map(len, labels)) > 60
    axes.set_xticks(range(len(bars)), labels, rotation=45 if tilted else 0, ha="right" if tilted else "center")
    axes.axhline(0, color="black", linewidth=0.8)
    axes.yaxis.get_major_locator().set_params(integer=how == "count")
    repeated = total < len(table)
    what = ", ".join(bars.columns)
    axes.set_ylabel(f"{how} of {what}" if ys and (repeated or how == "count") else what)
    if len(bars.columns) > 1:
        axes.legend(frameon=False)
    return f"{what} by {x}"


def line(axes, table, x, ys, _):
    pandas = tables.require("pandas", "python3-pandas")
    along = table[x]
    if along.dtype == object and along.astype(str).str.match(r"\d{4}-\d{2}-\d{2}").all():
        along = pandas.to_datetime(along, errors="coerce", utc=True)
        if along.isna().any():
            raise usage(f"column {x!r} holds something that looks like a date and is none")
        axes.tick_params(axis="x", rotation=30)
    try:
        order = along.sort_values(kind="stable").index
    except TypeError:
        raise usage(f"column {x!r} mixes numbers and texts") from None
    for i, name in enumerate(ys):
        axes.plot(along.loc[order], table[name].loc[order], color=COLOURS[i], label=name, marker="o" if len(table) <= 40 else None)
    if len(ys) > 1:
        axes.legend(frameon=False)
    axes.set_ylabel(ys[0] if len(ys) == 1 else "")
    return f"{', '.join(ys)} by {x}"


DRAW = {"histogram": histogram, "scatter": scatter, "bar": bar, "line": line}


def save(figure, args):
    """Write the PNG whole, or not at all."""
    part = f"{args.output}.part"
    try:
        # Without the Software field, the same data gives the same bytes.
        figure.savefig(part, format="png", dpi=args.dpi, metadata={"Software": None})
        os.replace(part, args.output)
    except OSError as e:
        if os.path.exists(part):
            os.unlink(part)
        raise tables.Failure(tables.READ_ERROR, f"{args.output}: {e.strerror}") from None


def main(argv):
    parser = options()
    args = parser.parse_args(argv)
    if not args.output.lower().endswith(".png"):
        parser.error(f"--output {args.output}: the name has to end in .png")
    table = tables.load(args, parser)
    x, ys = choose(args, table)
    drawn = table[[x, *ys]].replace([float("inf"), float("-inf")], float("nan"))
    complete = drawn.dropna().reset_index(drop=True)
    if len(complete) < len(table):
        print(f"rows left out because a value is missing: {len(table) - len(complete)}")
    if complete.empty:
        raise usage("no rows are left to draw")

    # A sandbox may have no settings in /etc. Debian's matplotlib fails without /etc/matplotlibrc, and
    # fontconfig, which it asks for fonts, prints a warning without /etc/fonts.
    os.environ["MATPLOTLIBRC"] = os.devnull
    os.environ["FONTCONFIG_FILE"] = os.path.join(os.path.dirname(__file__), "..", "assets", "fonts.conf")
    # Without pyplot, which would look for a display.
    figures = tables.require("matplotlib.figure", "python3-matplotlib")
    agg = tables.require("matplotlib.backends.backend_agg", "python3-matplotlib")
    figure = figures.Figure(figsize=(args.width, args.height), layout="constrained")
    agg.FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y" if args.type in ("bar", "histogram") else "both", alpha=0.3)
    axes.set_axisbelow(True)
    axes.set_xlabel(x)
    title = DRAW[args.type](axes, complete, x, ys, args)
    axes.set_title(args.title or title)
    save(figure, args)
    what = f"{', '.join(ys)} by {x}" if ys else x
    print(f"{args.type} of {what} ({len(complete)} rows) written to {args.output}")


if __name__ == "__main__":
    sys.exit(tables.run("visualize", main, sys.argv[1:]))
