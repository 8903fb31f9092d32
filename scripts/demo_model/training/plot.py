"""Plots a run's loss and indexer divergence."""

from pathlib import Path


def plot(history: list[dict], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(10, 4))
    for axis, key, label in (
        (axes[0], "loss", "weighted cross entropy"),
        (axes[1], "divergence", "indexer KL, sum over layers"),
    ):
        for stage in ("dense", "indexer", "sparse", "draft"):
            points = [(h["step"], h[key]) for h in history if h["stage"] == stage and h[key] > 0]
            if points:
                axis.plot(*zip(*points, strict=True), label=stage)
                axis.legend()
        axis.set(xlabel="step", ylabel=label, yscale="log")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
