"""A recording as one self-contained HTML page or a JSON file; the chat's inspector shares the page's script and style."""

import json
from html import escape
from pathlib import Path

from ...model.checkpoint.files import writing
from ..recording import Recording

STATIC = Path(__file__).resolve().parent / "static"
# Concatenated in this order into one scope.
SCRIPTS = (
    "dom.js",
    "inspector_text.js",
    "inspector_steps.js",
    "inspector_plots.js",
    "inspector_numbers.js",
    "inspector_experiment.js",
    "inspector.js",
)
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<title>What DeepSeek Sparse Attention read</title><style>{style}</style></head>
<body class="dsa-page"><main id="report"></main>
<script type="application/json" id="data">{data}</script>
<script>{script}</script>
<script>mountReport(document.getElementById("report"), JSON.parse(document.getElementById("data").textContent));</script>
</body></html>
"""


def script(*names: str) -> str:
    """These of SCRIPTS, by default all: JavaScript that defines mountInspector and mountReport."""
    return "\n".join((STATIC / name).read_text(encoding="utf-8") for name in names or SCRIPTS)


def inspector_style() -> str:
    """The inspector's CSS, with the colours that the chat uses as well."""
    return (STATIC / "inspector.css").read_text(encoding="utf-8")


def html_page(recording: Recording) -> str:
    """An HTML page that loads nothing from elsewhere."""
    data = recording.header() | {
        "selections": [recording.selection(i) for i in range(recording.count)],
        "totals": recording.totals(),
        "mass": recording.mass(),
    }
    return PAGE.format(
        style=inspector_style(),
        script=script(),
        data=json.dumps(data, ensure_ascii=False).replace("<", "\\u003c"),
    )


def notebook_frame(recording: Recording) -> str:
    """The page as a frame for the output of a notebook's cell, with its own styles and scripts."""
    page = escape(html_page(recording), quote=True)
    return f'<iframe srcdoc="{page}" sandbox="allow-scripts" style="width: 100%; height: 900px; border: 0"></iframe>'


def write_report(path: Path, recording: Recording) -> None:
    """Write a recording to a .json or .html file. ValueError for any other name."""
    if path.suffix == ".json":
        text = json.dumps(recording.to_json(), ensure_ascii=False)
    elif path.suffix == ".html":
        text = html_page(recording)
    else:
        raise ValueError(f"{path} is the report's name; expected one that ends in .json or .html")
    with writing(path):
        path.write_text(text, encoding="utf-8")
