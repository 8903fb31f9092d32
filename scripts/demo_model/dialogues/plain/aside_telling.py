"""Tells asides: remarks of several people in one sentence, the user as one of them, names in quotes, comments between."""

import re

from ..phrases import capital
from ..splits import SPLITS, pick, split_of
from . import remarks
from .aside_cases import OWN, OWN_BY_SPLIT, clause_without_verb
from .aside_words import FRAMES, NAMES, PEOPLE, accented_name, named_value
from .remark_cases import Case, Subject, draw, subject
from .remark_telling import Remarked
from .sketch_blocks import article

_FRAMES = {
    name: {split: [form for form in forms if split_of(f"aside {name} {form}") == split] for split in SPLITS}
    for name, forms in FRAMES.items()
}
_CONTRACTED = re.compile(r"\b(it|that|there|he|she|who|what|where|let)'s")
_QUOTES = (("'", "'"), ('"', '"'), ("'", "'"), ('"', '"'), ("“", "”"), ("*", "*"), ("_", "_"))
_JOINS = (" and ", ", and ", ", ", "; ", " but ", " while ", ", ")


def _joined(rng, clauses: list[str]) -> str:
    join = pick(rng, _JOINS)
    end = pick(rng, (" and ", ", and ", join)) if len(clauses) > 2 or join == ", " else join
    return join.join(clauses[:-1]) + end + clauses[-1]


class _Hasty(Subject):
    """A subject whose possessive has no apostrophe: "my cats name"."""

    @property
    def fields(self) -> dict[str, str]:
        return super().fields | {"xs": self.text + "s"}


class AsideTelling(remarks.Remarks):
    """Tells remarks, with comments between."""

    own_share = 0.3  # of cases that were turned to the user

    def __init__(self, writer):
        super().__init__(writer)
        self.quoted: dict[str, tuple[str, str]] = {}  # values that stand in quotation marks where they are told
        self.chatty = pick(self.rng, (0.0, 0.1, 0.3, 0.5))
        self.bare = self.rng.random() < 0.12  # writes possessives without an apostrophe

    def aside(self, name: str) -> str:
        return pick(self.rng, _FRAMES[name][self.wording] or _FRAMES[name]["train"])

    # Subjects and values

    def draw_case(self, case: Case | None = None) -> Remarked | None:
        rng = self.rng
        if case is None and self.writer.plain and self.own_share and rng.random() < self.own_share:
            return self.begin_case(pick(rng, OWN_BY_SPLIT[self.wording]))
        case = case or pick(rng, self.pool.cases[self.wording])
        about = draw(rng, self.split, case)
        if case.somebody and rng.random() < 0.12:
            about = subject(accented_name(rng, about.text), about.they)
        if self.bare and case.somebody and not about.text.endswith("s"):
            about = _Hasty(about.text, about.they, about.key)
        return self.begin_case(case, about)

    def value(self, kind: str) -> str:
        if kind not in NAMES and kind not in PEOPLE:
            return super().value(kind)
        text = named_value(self.rng, self.split, kind)
        if kind in NAMES and text[:1].isupper() and self.rng.random() < 0.2:
            self.quoted[text] = pick(self.rng, _QUOTES)
        return text

    def said(self, form: str, fields: dict[str, str]) -> str:
        shown = {}
        if self.bare and not _CONTRACTED.search(form):
            form = re.sub(r"(?<=[a-rt-z])'s (?=[a-z])", "s ", form)
        for name, text in fields.items():
            before, after = self.quoted.get(text, ("", "")) if "{" + name + "}'" not in form else ("", "")
            shown[name] = f"{before}{text}{after}"
        return super().said(form, shown)

    # Statements

    def chat(self, share: float = 1.0) -> None:
        """A comment that tells nothing, in this message or in one of its own."""
        rng = self.rng
        if rng.random() > self.chatty * share:
            return
        if self.parts and rng.random() < 0.5:
            self.send()
        text = self.aside("chatter")
        self.say(text if self.sloppy else capital(text), [])
        self.last = None
        if rng.random() < 0.5:
            self.send()

    def several(self) -> bool:
        """Two or three subjects of one case in a sentence; the user may be one of them."""
        rng = self.rng
        base = pick(rng, [case for case in self.pool.cases[self.wording] if not case.mine])
        forms = [form for form in base.tellable(self.wording) if len(base.told_by(form)) == 1]
        if not forms:
            return False
        form = pick(rng, forms)
        slot = base.told_by(form)[0]
        told = self._together(base)
        clauses = self._clauses(told, form, slot) if len(told) > 1 else None
        if clauses is None or not self.state([(each, slot) for each in told], [article(_joined(rng, clauses))]):
            for each in told:
                each.values.clear()
            self.told = [each for each in self.told if each.values]
            return False
        self.last = None
        return True

    def _together(self, base: Case) -> list[Remarked]:
        """Different subjects of a case."""
        rng, told = self.rng, []
        own, count = OWN.get(base.name), 2 + (self.rng.random() < 0.3)
        place = int(rng.random() * count) if own and self.writer.plain and rng.random() < 0.35 else -1
        for number in range(count):
            made = self.begin_case(own) if number == place else self.draw_case(base)
            if made is not None and all(made.about.key != other.about.key for other in told):
                told.append(made)
        return told

    def _clauses(self, told: list[Remarked], form: str, slot: str) -> list[str] | None:
        """One for each subject; those after the first may leave out their verb."""
        rng, clauses = self.rng, []
        short = clause_without_verb(form, "x", slot) if rng.random() < 0.65 else None
        for each in told:
            fitting = [f for f in each.case.tellable(self.wording) if each.case.told_by(f) == [slot]]
            filled = self.fill(each, [slot])
            if not fitting or filled is None:
                return None
            each.values |= filled
            fields, mine = {**each.about.fields, **filled}, each.case.mine
            if short is not None and clauses:
                clauses.append(self.said(short, fields | {"x": pick(rng, ["I", "me"]) if mine else each.about.text}))
            else:
                clauses.append(self.said(form if not mine and rng.random() < 0.7 else pick(rng, fitting), fields))
        return clauses
