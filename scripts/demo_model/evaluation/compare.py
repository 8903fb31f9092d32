"""Compares reports of evaluate.py with the first one, in percentage points of exact match.

cd scripts && python -m demo_model.evaluation.compare ../build/exact ../build/auto ../build/tile
"""

import json
import sys
from pathlib import Path

KINDS = ("stated", "updated", "unanswerable")


def rows_of(folders: list[Path]) -> list[dict]:
    """One row per report and cell. `difference`: to the same cell of the first report, by kind of question."""
    reports = {folder.name: json.loads((folder / "evaluation.json").read_text()) for folder in folders}
    base = next(iter(reports.values()))["cells"]
    rows = []
    for name, report in reports.items():
        for cell, result in report["cells"].items():
            if result["questions"] != base[cell]["questions"]:
                came, expected = result["questions"], base[cell]["questions"]
                raise SystemExit(f"{name}: {cell} has {came} questions; expected {expected}: use the same --tokens")
            row = {
                "report": name,
                "cell": cell,
                "precision": result["precision"],
                "conversations": result["conversations"],
            }
            row |= {"questions": sum(result["questions"].values())} | {kind: result[kind] for kind in KINDS}
            difference = {kind: round(result[kind] - base[cell][kind], 2) for kind in KINDS if result[kind] is not None}
            rows.append(row | {"difference": difference, "seconds": result["seconds"]})
    return rows


def main() -> None:
    rows = rows_of([Path(each) for each in sys.argv[1:]])
    headings = ("report", "cell", "precision", "conversations", "questions", *KINDS, "seconds")
    print(" ".join(f"{heading:>13}" for heading in (*headings, "largest diff.")))
    for row in rows:
        worst = max(row["difference"].values(), key=abs, default=0.0)
        print(" ".join(f"{row[heading]!s:>13}" for heading in headings), f"{worst:>+13.2f}")
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
