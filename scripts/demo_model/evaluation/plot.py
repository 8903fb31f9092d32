"""Plots exact match over context length, and that of the variants at 4K."""

from pathlib import Path


def plot(results: dict, path: Path, variants: dict | None = None) -> None:
    """variants: the cells of the bars, if they are not among `results`: all of the same conversations."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (lines, bars) = pyplot.subplots(1, 2, figsize=(11, 4))
    for label, chosen in (("DSA, FP8", ""), ("dense, FP8", " dense"), ("DSA, unseen wordings", " new")):
        points = [
            (r["length"], r["stated"]) for name, r in results.items() if name == f"{r['length'] // 1024}K{chosen}"
        ]
        if points:
            lines.plot(*zip(*sorted(points), strict=True), marker="o", label=label)
    lines.set(xscale="log", xlabel="context, tokens", ylabel="exact match of stated facts, %")
    lines.set_ylim(min(80, lines.get_ylim()[0]), 100.5)
    lines.set_xticks([1024, 4096, 8192, 16384, 32768], ["1K", "4K", "8K", "16K", "32K"])
    lines.legend(loc="lower left")
    at_4k = {name[3:] or "DSA": r["stated"] for name, r in (variants or results).items() if r["length"] == 4096}
    bars.bar(list(at_4k), list(at_4k.values()))
    bars.set(ylabel="exact match at 4K, %", ylim=(0, 100))
    bars.tick_params(axis="x", rotation=30)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
