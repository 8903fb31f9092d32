"""Tables of a domain in the formats that people paste: Markdown, CSV, JSON, YAML, ini, bullets, one line …"""

import json
import re
from dataclasses import dataclass

from ..clauses import Grammar
from ..lexicon import DAYS
from ..phrases import Question, capital
from ..splits import pick, split_of
from .domains import DOMAINS, Column, Domain
from .kinds import cell, plural

# One line and the questions that it answers.
Line = tuple[str, list[Question]]
# A line and the cells, (row, column), that it shows.
Shown = tuple[str, list[tuple[int, int]]]


@dataclass
class Table:
    domain: Domain
    columns: list[Column]
    head: str  # of the rows' names
    headers: list[str]
    rows: list[str]
    cells: list[list[str]]


_VAGUE = re.compile(r"^(where|when|who|what|how much|how) (?:is|are) (?:the |flight |parcel |locker )?\{[eE]\}$")


def draw_table(grammar: Grammar, most: int = 8) -> Table:
    """A table of any domain with one to four columns and up to `most` rows."""
    rng, split = grammar.rng, grammar.split
    domain = pick(rng, DOMAINS)
    columns: list[Column] = []
    for _ in range(1 + int(rng.random() * 3.6)):
        column = pick(rng, domain.columns)
        if column not in columns:
            columns.append(column)
    if domain.kind == "day":
        rows = _days(rng)[: 2 + int(rng.random() * most)]
    else:
        rows = []
        for _ in range(2 + int(rng.random() ** 1.5 * most)):
            name = cell(rng, split, domain.kind)
            if name not in rows:
                rows.append(name)
    styles = [rng.random() for _ in columns]
    cells = [[cell(rng, split, c.kind, s) for c, s in zip(columns, styles, strict=True)] for _ in rows]
    return Table(domain, columns, pick(rng, domain.headers), [pick(rng, c.headers) for c in columns], rows, cells)


def _days(rng) -> list[str]:
    """Days in order, perhaps shortened."""
    days = [*DAYS]
    start = int(rng.random() * 7) if rng.random() < 0.4 else 0
    days = days[start:] + days[:start]
    if rng.random() < 0.12:
        return [day[:3] for day in days]
    return days


def questions(grammar: Grammar, table: Table) -> dict[tuple[int, int, bool], Question]:
    """By row, column and direction; True: by the value."""
    rng, domain = grammar.rng, table.domain
    found: dict[tuple[int, int, bool], Question] = {}
    vague_taken: set[str] = set()
    for number, column in enumerate(table.columns):
        shown = [row[number] for row in table.cells]
        header = table.headers[number]
        asks = of_split(column.asks, f"{domain.name} {column.name}", grammar.wording.split)
        reverse = of_split(column.reverse, f"{domain.name} {column.name}", grammar.wording.split)
        vague = {m.group(1) for form in asks if (m := _VAGUE.match(form))}
        if vague & vague_taken:
            asks = [form for form in asks if not _VAGUE.match(form)]
            vague = set()
        vague_taken |= vague
        for r, name in enumerate(table.rows):
            value = shown[r]
            said = _FULL_DAYS.get(name, name)
            named = domain.naming.format(e=said)
            if named[:4].lower() == "the " and said[:4].lower() == "the ":
                named = said
            of = f"{named}'s {header}" if not named.startswith("the ") else f"the {header} of {named}"
            if domain.kind == "day":
                of = f"the {header} on {said}"
            direct = [agree(form.format(e=said, E=named, p=plural(said)), said) for form in some(rng, asks, 4)]
            label = header if len(header) > 2 and header[0].isalpha() else column.name
            of = of.replace(header, label)
            direct.append(
                pick(
                    rng,
                    [
                        f"what is {of}",
                        f"what's {of}",
                        f"what is the {label} of {named}",
                        f"which {label} does {named} have",
                        f"what does it say for {of}",
                        f"what {label} has {named}",
                    ],
                )
            )
            short = [f"{named} {label}", of, f"{label} {named}", f"{label} of {named}"]
            key = said.lower()
            aliases = tuple(f"{wh}|{key}" for wh in vague)
            found[r, number, False] = Question(f"{column.name}|{key}", value, direct, [of, of], short, [], aliases)
            if column.reverse and shown.count(value) == 1 and reverse and value not in ("none", "yes", "no"):
                back = [form.format(v=value) for form in some(rng, reverse, 3)]
                kind = domain.noun
                back.append(
                    pick(
                        rng,
                        [
                            f"{'who' if kind == 'who' else 'which ' + kind} has the {label} {value}",
                            f"{'whose' if kind == 'who' else 'which ' + kind + chr(39) + 's'} {label} is {value}",
                        ],
                    )
                )
                found[r, number, True] = Question(
                    f"by {column.name}|{value.lower()}", name, back, [], [], [], (f"who is|{value.lower()}",)
                )
    return found


_FULL_DAYS = {day[:3]: day for day in DAYS}


def of_split(forms: tuple[str, ...], where: str, split: str) -> list[str]:
    """Forms that the split may use; those of training where it has none."""
    mine = [form for form in forms if split_of(f"{where} {form}") == split]
    return mine or [form for form in forms if split_of(f"{where} {form}") == "train"] or list(forms)


def agree(text: str, name: str) -> str:
    """The question with its verb in the number of the name."""
    if name.endswith("s") and not name.endswith(("ss", "us")):
        for one, many in (
            ("does the ", "do the "),
            ("is the ", "are the "),
            ("was the ", "were the "),
            ("much ", "many "),
            ("does ", "do "),
        ):
            text = text.replace(one + name, many + name)
        return text
    return text.replace(f"many {name} ", f"much {name} ")


def some(rng, forms: list[str], count: int) -> list[str]:
    return forms if len(forms) <= count else [pick(rng, forms) for _ in range(count)]


def table(grammar: Grammar) -> list[Line]:
    """A table in any format, with a title or without, and the questions that each of its lines answers."""
    rng = grammar.rng
    drawn = draw_table(grammar)
    asked = questions(grammar, drawn)
    lines: list[Line] = []
    if rng.random() < 0.5:
        title = pick(rng, drawn.domain.titles)
        lines.append(
            (
                pick(
                    rng,
                    [
                        "{}:",
                        "{}",
                        "# {}",
                        "Here is the list. {}:",
                        "{}:",
                        "== {} ==",
                        "{} (updated)",
                        "I have this here:",
                        "Our table:",
                        "Remember this: {}",
                        "**{}**",
                        "from the {}:",
                    ],
                ).format(title),
                [],
            )
        )
    for text, cells in pick(rng, FORMATS)(rng, drawn):
        answered: list[Question] = []
        for r, c in cells:
            for by_value in (False, True):
                question = asked.get((r, c, by_value))
                if question and question.value in text and (not by_value or drawn.cells[r][c] in text):
                    answered.append(question)
        lines.append((text, answered))
    lines[-1][1].extend(_missing(grammar, drawn))
    return lines


def _missing(grammar: Grammar, table: Table) -> list[Question]:
    """Questions without a value: about another row, and about a column that the table does not have."""
    rng, domain, found = grammar.rng, table.domain, []
    names = [row.lower() for row in table.rows]
    for _ in range(2):
        column, name = pick(rng, table.columns), cell(rng, grammar.split, domain.kind)
        if name.lower() not in names and domain.kind != "day":
            asks = [form for form in column.asks if not _VAGUE.match(form)] or list(column.asks)
            found.append(_unanswered(rng, domain, column.name, asks, name))
        other = pick(rng, domain.columns)
        present = {form for c in table.columns for form in c.asks}
        asks = [form for form in other.asks if form not in present and not _VAGUE.match(form)]
        if other not in table.columns and asks:
            name = pick(rng, table.rows)
            found.append(_unanswered(rng, domain, other.name, asks, _FULL_DAYS.get(name, name)))
    return found


def _unanswered(rng, domain: Domain, column: str, asks: list[str], name: str) -> Question:
    named = domain.naming.format(e=name)
    direct = [agree(form.format(e=name, E=named, p=plural(name)), name) for form in some(rng, asks, 4)]
    return Question(f"{column}|{name.lower()}", "", direct)


# Formats -----------------------------------------------------------------------------------------------------------


def _all(table: Table, row: int) -> list[tuple[int, int]]:
    return [(row, column) for column in range(len(table.columns))]


def _ordered(rng, table: Table) -> tuple[list[str], list[list[str]]]:
    """Headers and rows with the rows' names, usually first."""
    at = 0 if rng.random() < 0.82 else int(rng.random() * (len(table.columns) + 1))
    headers = [*table.headers[:at], table.head, *table.headers[at:]]
    rows = [[*cells[:at], name, *cells[at:]] for name, cells in zip(table.rows, table.cells, strict=True)]
    return headers, rows


def markdown(rng, table: Table) -> list[Shown]:
    headers, rows = _ordered(rng, table)
    if rng.random() < 0.5:
        headers = [capital(h) for h in headers]
    widths = [0] * len(headers)
    if rng.random() < 0.5:
        widths = [max(len(row[i]) for row in [headers, *rows]) for i in range(len(headers))]
    rule = pick(rng, ["---", "---", "---", ":---", "---:", ":-:", "-----"])
    tight = rng.random() < 0.15

    def line(cells: list[str]) -> str:
        text = ("|" if tight else " | ").join(c.ljust(w) for c, w in zip(cells, widths, strict=True))
        return f"|{text}|" if tight else f"| {text} |"

    rules = ["-" * max(w, 3) if w else rule for w in widths]
    return [(line(headers), []), ("|" + "|".join(rules) + "|" if rng.random() < 0.6 else "| " + " | ".join(rules) + " |", []),
            *((line(cells), _all(table, i)) for i, cells in enumerate(rows))]  # fmt: skip


def _speaks(table: Table) -> bool:
    """Whether each value shows by its form which column it is of."""
    kinds = [column.kind[0] if column.kind[0] in "#=$@" else column.kind for column in table.columns]
    return len({table.domain.kind, *kinds}) == len(kinds) + 1


def separated(rng, table: Table) -> list[Shown]:
    """CSV and its kin; without a header now and then where values explain themselves."""
    headers, rows = _ordered(rng, table)
    join = pick(rng, [",", ",", ", ", ";", "\t", " | ", " | ", "|", " / ", " - ", "  "])
    if "," in join:
        rows = [[cell.replace(", ", " ") for cell in cells] for cells in rows]
    lines: list[Shown] = [(join.join(cells), _all(table, i)) for i, cells in enumerate(rows)]
    return lines if _speaks(table) and rng.random() < 0.3 else [(join.join(headers), []), *lines]


def aligned(rng, table: Table) -> list[Shown]:
    """Columns by spaces, perhaps with rules."""
    headers, rows = _ordered(rng, table)
    if rng.random() < 0.3:
        headers = [h.upper() for h in headers]
    widths = [max(len(row[i]) for row in [headers, *rows]) for i in range(len(headers))]
    gap = pick(rng, ["  ", "   ", " | ", "  "])
    right = rng.random() < 0.15

    def line(cells: list[str]) -> str:
        return gap.join(c.rjust(w) if right else c.ljust(w) for c, w in zip(cells, widths, strict=True)).rstrip()

    lines: list[Shown] = [] if _speaks(table) and rng.random() < 0.2 else [(line(headers), [])]
    if lines and rng.random() < 0.4:
        lines.append(("-" * len(line(headers)) if rng.random() < 0.5 else gap.join("-" * w for w in widths), []))
    lines += [(line(cells), _all(table, i)) for i, cells in enumerate(rows)]
    if rng.random() < 0.2:
        rule = "+" + "+".join("-" * (w + 2) for w in widths) + "+"
        boxed = [
            (f"| {' | '.join(c.ljust(w) for c, w in zip(cells, widths, strict=True))} |", _all(table, i))
            for i, cells in enumerate(rows)
        ]
        top = f"| {' | '.join(h.ljust(w) for h, w in zip(headers, widths, strict=True))} |"
        return [(rule, []), (top, []), (rule, []), *boxed, (rule, [])]
    return lines


def transposed(rng, table: Table) -> list[Shown]:
    """A line for each column."""
    join = pick(rng, [" | ", ",", "\t", ";", " | "])
    edge = join == " | " and rng.random() < 0.6

    def line(cells: list[str]) -> str:
        text = join.join(cells)
        return f"| {text} |" if edge else text

    clean = [[c.replace(",", "") if join == "," else c for c in cells] for cells in table.cells]
    lines: list[Shown] = [(line([pick(rng, ["", table.head]), *table.rows]), [])]
    if edge:
        lines.append(("|" + "---|" * (len(table.rows) + 1), []))
    for c, header in enumerate(table.headers):
        lines.append((line([header, *(row[c] for row in clean)]), [(r, c) for r in range(len(table.rows))]))
    return lines


def bullets(rng, table: Table) -> list[Shown]:
    """ "- Anna: room 204, phone 12", "Anna (204)", "Anna ... 204": a line a row, with the columns' names or without."""
    bullet = pick(rng, ["", "", "- ", "* ", "• ", "{n}. ", "{n}) "])
    form = pick(
        rng,
        [
            "{e}: {c}",
            "{e}: {c}",
            "{e} - {c}",
            "{e} ({c})",
            "{e}, {c}",
            "{e} -> {c}",
            "{e} = {c}",
            "{e} {c}",
            "{e} | {c}",
            "{e} .... {c}",
            "{e}\t{c}",
        ],
    )
    label = (
        pick(rng, ["{h} {v}", "{h} {v}", "{h}: {v}", "{h}={v}", "{v}", "{v}", "{v} ({h})", "{h} = {v}"])
        if len(table.columns) > 1
        else pick(rng, ["{v}", "{v}", "{v}", "{h} {v}"])
    )
    if "{h}" not in label and not _speaks(table):
        label = "{h} {v}"
    if form == "{e} {c}" and label == "{v}" and not any(v[0].isdigit() for v in (row[0] for row in table.cells)):
        form = "{e}: {c}"
    if form == "{e} ({c})" and "(" in label:
        label = "{v}"
    join = pick(rng, [", ", ", ", "; ", " | ", " - ", " / "])
    lines = []
    for r, name in enumerate(table.rows):
        text = join.join(label.format(h=h, v=v) for h, v in zip(table.headers, table.cells[r], strict=True))
        lines.append((bullet.format(n=r + 1) + form.format(e=name, c=text), _all(table, r)))
    return lines


def value_first(rng, table: Table) -> list[Shown]:
    """ "204 Anna", "14:30 - dentist": the first column before the row's name."""
    form = pick(
        rng,
        [
            "{v} {e}",
            "{v}: {e}",
            "{v} - {e}",
            "{v} | {e}",
            "{v}  {e}",
            "{v}, {e}",
            "{v} = {e}",
            "{v} x {e}",
            "{v} -> {e}",
        ],
    )
    bullet = pick(rng, ["", "", "- ", "* "])
    if not _speaks(table):
        return markdown(rng, table)
    if not all(row[0][0].isdigit() for row in table.cells) and form[3] == " " and form[4:5] in "{ ":
        form = "{v}: {e}"
    lines: list[Shown] = []
    for r, name in enumerate(table.rows):
        rest = "".join(f"{pick(rng, [', ', ', '])}{v}" for v in table.cells[r][1:])
        lines.append((bullet + form.format(v=table.cells[r][0], e=name) + rest, _all(table, r)))
    return lines


def inline(rng, table: Table) -> list[Shown]:
    """All rows in one line: "Prices: apples 2 euros, pears 3 euros"."""
    single = pick(
        rng, ["{e} {v}", "{e}: {v}", "{e} ({v})", "{e} = {v}", "{e} - {v}", "{v} {e}", "{e} is {v}", "{e} at {v}"]
    )
    join = pick(rng, [", ", ", ", "; ", " / ", " | ", " · "])
    if not all(row[0][:1].isdigit() for row in table.cells):
        single = pick(rng, ["{e}: {v}", "{e} ({v})", "{e} = {v}", "{e} - {v}"])
    rows = min(len(table.rows), 5)
    text = join.join(single.format(e=table.rows[r], v=table.cells[r][0]) for r in range(rows))
    lead = pick(rng, ["{h}: ", "{h} - ", "", "the {h}s: ", "{H}: ", "{H}s: "]).format(
        h=table.headers[0], H=capital(table.headers[0])
    )
    return [(lead + text, [(r, 0) for r in range(rows)])]


def _typed(rng, value: str):
    return int(value) if value.isdigit() and str(int(value)) == value and rng.random() < 0.6 else value


def json_rows(rng, table: Table) -> list[Shown]:
    """Objects, one a line: JSON lines, an array, or an object of objects."""
    headers = [_key(rng, h) for h in table.headers]
    head, style = _key(rng, table.head), rng.random()
    lines: list[Shown] = []
    for r, name in enumerate(table.rows):
        record = {h: _typed(rng, v) for h, v in zip(headers, table.cells[r], strict=True)}
        text = json.dumps({head: name, **record} if style < 0.7 else record, ensure_ascii=False)
        if style >= 0.7:
            text = f"  {json.dumps(name, ensure_ascii=False)}: {text}"
        last = r == len(table.rows) - 1
        lines.append(
            (
                text
                if style < 0.4
                else f"{text}{'' if last else ','}"
                if style >= 0.7
                else f"  {text}{'' if last else ','}",
                _all(table, r),
            )
        )
    if style < 0.4:
        return lines
    return [("[" if style < 0.7 else "{", []), *lines, ("]" if style < 0.7 else "}", [])]


def _key(rng, header: str) -> str:
    return re.sub(r"[ -]", "_", header.strip(".")) if rng.random() < 0.7 else header


def nested(rng, table: Table) -> list[Shown]:
    """A block for each row: YAML, ini, or "Name: Anna" and its fields."""
    style, lines = rng.random(), []
    keys = [_key(rng, h) for h in table.headers]
    for r, name in enumerate(table.rows[:5]):
        if style < 0.3:
            lines.append((f"{name}:", []))
            form = "  {k}: {v}"
        elif style < 0.5:
            lines.append((f"- {table.head}: {name}", []))
            form = "  {k}: {v}"
        elif style < 0.7:
            lines.append((f"[{name}]", []))
            form = pick(rng, ["{k} = {v}", "{k}={v}"])
        elif style < 0.8:
            lines.append((f"## {name}", []))
            form = "- {k}: {v}"
        else:
            if r:
                lines.append(("", []))
            lines.append((f"{capital(table.head)}: {name}", []))
            form = "{K}: {v}"
        for c, key in enumerate(keys):
            lines.append((form.format(k=key, K=capital(key), v=table.cells[r][c]), [(r, c)]))
    return lines


def nested_json(rng, table: Table) -> list[Shown]:
    keys = [_key(rng, h) for h in table.headers]
    lines: list[Shown] = [("{", [])]
    rows = min(len(table.rows), 4)
    for r in range(rows):
        lines.append((f"  {json.dumps(table.rows[r], ensure_ascii=False)}: {{", []))
        for c, key in enumerate(keys):
            comma = "" if c == len(keys) - 1 else ","
            lines.append(
                (f'    "{key}": {json.dumps(_typed(rng, table.cells[r][c]), ensure_ascii=False)}{comma}', [(r, c)])
            )
        lines.append(("  }" if r == rows - 1 else "  },", []))
    return [*lines, ("}", [])]


def dotted(rng, table: Table) -> list[Shown]:
    """ "redis.port=6379", "redis_port: 6379"."""
    join = pick(rng, [".", "_", "/", " ", ".", ": "])
    equals = pick(rng, ["=", " = ", ": "]) if join != ": " else " = "
    return [
        (f"{name}{join}{header}{equals}{table.cells[r][c]}", [(r, c)])
        for r, name in enumerate(table.rows) for c, header in enumerate(table.headers)
    ]  # fmt: skip


def markup(rng, table: Table) -> list[Shown]:
    """XML, HTML rows, or named tuples."""
    tag, style, plain = table.domain.noun if table.domain.noun != "who" else "person", rng.random(), rng.random() < 0.5
    lines: list[Shown] = []
    for r, name in enumerate(table.rows):
        pairs = [
            (_key(rng, table.head), name),
            *zip([_key(rng, h) for h in table.headers], table.cells[r], strict=True),
        ]
        if style < 0.4:
            text = f"<{tag} " + " ".join(f'{k}="{v}"' for k, v in pairs) + "/>"
        elif style < 0.7:
            text = "<tr>" + "".join(f"<td>{v}</td>" for _, v in pairs) + "</tr>"
        else:
            text = (
                " ".join(f"{k}={v}" for k, v in pairs)
                if plain
                else f"{tag}(" + ", ".join(f"{k}={v!r}" for k, v in pairs) + ")"
            )
        lines.append((text, _all(table, r)))
    if 0.4 <= style < 0.7:
        head = "<tr>" + "".join(f"<th>{h}</th>" for h in [table.head, *table.headers]) + "</tr>"
        return [("<table>", []), (head, []), *lines, ("</table>", [])]
    return lines


FORMATS = (
    markdown, markdown, markdown, separated, separated, separated, aligned, aligned, transposed, bullets, bullets, bullets, bullets,
    value_first, value_first, inline, inline, json_rows, json_rows, nested, nested, nested_json, dotted, markup,
)  # fmt: skip
