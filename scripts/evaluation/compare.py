"""Several reports of evaluate.py side by side: how far each is from the first, in points of exact match.

cd scripts && python -m evaluation.compare ../build/exact ../build/auto ../build/tile
"""

import json
import sys
from pathlib import Path

KINDS = ("told", "changed", "not_told")


def rows_of(folders: list[Path]) -> list[dict]:
    """One row a report and cell; `apart`: the difference to the first report's same cell, by kind of question."""
    reports = {folder.name: json.loads((folder / "evaluation.json").read_text()) for folder in folders}
    base = next(iter(reports.values()))["cells"]
    rows = []
    for name, report in reports.items():
        for cell, result in report["cells"].items():
            if result["questions"] != base[cell]["questions"]:
                raise SystemExit(
                    f"{name}, {cell}: other questions than in {folders[0].name}; give both the same --tokens"
                )
            row = {
                "report": name,
                "cell": cell,
                "precision": result["precision"],
                "conversations": result["conversations"],
            }
            row |= {"questions": sum(result["questions"].values())} | {kind: result[kind] for kind in KINDS}
            apart = {kind: round(result[kind] - base[cell][kind], 2) for kind in KINDS if result[kind] is not None}
            rows.append(row | {"apart": apart, "seconds": result["seconds"]})
    return rows


def main() -> None:
    rows = rows_of([Path(each) for each in sys.argv[1:]])
    headings = ("report", "cell", "precision", "conversations", "questions", *KINDS, "seconds")
    print(" ".join(f"{heading:>13}" for heading in (*headings, "largest apart")))
    for row in rows:
        worst = max(row["apart"].values(), key=abs, default=0.0)
        print(" ".join(f"{row[heading]!s:>13}" for heading in headings), f"{worst:>+13.2f}")
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
