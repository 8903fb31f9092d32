"""Tells cases as people do, message by message: among small talk, several subjects in a sentence, typed neatly or not; changes them,
and asks for what was told and for what was not, most often something near to it."""

import re
from dataclasses import replace

from . import cases
from .apart import apart, asks_what_tells, names_case
from .cases import Case, Subject, draw, without_verb
from .message import Message, Told
from .splits import below, pick, split_of
from .texts import LISTS
from .turns import Turn
from .values import article, capital
from .writer import Writer, stems

# Kinds of values that could be taken for each other where only the value is named.
_ALIKE = (
    "clock time", "when date day weekdays", "price amount number count age few port percent digits measure quantity", "span tall weight length size shopsize temp distance duration",
    "longcode code secret handle password phone ip version flight spotcode seatnumber mail file number digits", "dish thing goods food foods drink medicine", "shade colour",
    "person firstname titled name petname word title band eatery company team org school town street place room floor address gate spot country noun phrase",
)  # fmt: skip
# Kinds, and cases, of which a second value stands next to the first one where nothing says that it replaces it.
_ADDED = frozenset(LISTS["added"])
_SEVERAL = frozenset(LISTS["several"])
# Of a question: a sentence with all of its other words could be taken for its answer.
_VAGUE = stems("long many much time day say said")
_VERBS = "reach|call|get|give|giving|cook for|meet|meeting|see|visit|lend|lent|collect|pick up|expect|promise|email|feed|fix|fixed|repairs|find|put|leave|keep"
_AFTER = {they: re.compile(rf"\b(to|for|with|about|of|from|on|at|under|{_VERBS}) {they}\b") for they in ("he", "she")}
_SLOPPY = {
    "i'm": "im", "don't": "dont", "can't": "cant", "it's": "its", "what's": "whats", "where's": "wheres", "who's": "whos", "didn't": "didnt", "isn't": "isnt", "doesn't": "doesnt",
    "that's": "thats", "won't": "wont", "couldn't": "couldnt", "you'll": "youll", "he's": "hes", "she's": "shes", "they're": "theyre", "we're": "were", "i'll": "ill",
}  # fmt: skip
_EXACT = frozenset(LISTS["exact"])
_NAMES = frozenset(LISTS["quoted"])  # that may be quoted
_QUOTES = (("'", "'"), ('"', '"'), ("'", "'"), ('"', '"'), ("“", "”"), ("*", "*"), ("_", "_"))
_NOTED = (": ", ": ", ": ", " - ", " = ", " ", ", ")
_JOINS = (" and ", ", and ", ", ", "; ", " but ", " while ", ", ")


def alike(one: str, other: str) -> bool:
    return one == other or any(one in group.split() and other in group.split() for group in _ALIKE)


class Telling(Message):
    """Tells a few cases of a pool, by split."""

    def __init__(self, writer: Writer, pool: dict[str, list[Case]]):
        super().__init__(writer)
        self.pool = pool[self.wording]
        self.told: list[Told] = []
        self.last: tuple[Told, str] | None = None  # what the sentence before told, if nothing else
        self.alone = True  # whether nothing else was told since, so that a value before says what is meant
        self.quoted: dict[str, tuple[str, str]] = {}  # values that stand in quotation marks where they are told
        self.chatty = pick(self.rng, (0.0, 0.0, 0.2, 0.4))
        self.bare = self.rng.random() < 0.08  # writes possessives without an apostrophe

    # Subjects and values

    def begin(self, case: Case | None = None, about: Subject | None = None, genus: str = "") -> Told | None:
        """Another case, or the same of another subject or genus; None if the conversation has it already."""
        rng, writer = self.rng, self.writer
        case = case or pick(rng, self.pool)
        about = about or draw(rng, self.split, case)
        mine = [told for told in self.told if told.case is case and told.about.key == about.key]
        if case.genus:
            genus = genus or pick(rng, case.genus)
            if any(genus in told.genus or told.genus in genus for told in mine):
                return None
        elif mine:
            return None
        if not mine:
            if all(about.key != told.about.key for told in self.told) and any(
                map(writer.mentions, case.keys or (about.key,))
            ):
                return None
            others = [told for told in writer.cases if told.case is not case or case.mine]
            if not all(apart(case, about, told.case, told.about) for told in others):
                return None
        if self.bare and case.somebody and not about.text.endswith("s"):
            about = replace(about, own="s")
        if writer.sloppy and rng.random() < 0.6:
            about = replace(about, text=about.text.lower())
        made = Told(case, about, genus)
        writer.subjects |= set(case.keys) if case.mine else {about.key}
        writer.cases.append(made)
        self.told.append(made)
        return made

    def twin(self, of: Told) -> None:
        """The same of something that is nearly the same: another genus, qualifier or subject."""
        rng, case = self.rng, of.case
        if case.genus and (case.mine or rng.random() < 0.7):
            self.begin(case, of.about, pick(rng, case.genus))
        elif not case.mine:
            similar = of.about.base and rng.random() < 0.7
            self.begin(case, of.about.other(rng, self.split) if similar else None, of.genus)

    def value(self, kind: str) -> str:
        text = cases.value(self.rng, self.split, kind)
        if kind in _NAMES and text[:1].isupper() and self.rng.random() < 0.15:
            self.quoted[text] = pick(self.rng, _QUOTES)
            return text
        return article(text.lower()) if self.writer.sloppy and kind not in _EXACT and self.rng.random() < 0.6 else text

    def fill(self, of: Told, slots: list[str]) -> dict[str, str] | None:
        """New values for the slots, none of which contains another or the subject."""
        filled: dict[str, str] = {}
        others = [v.lower() for each in self.told for v in (*each.values.values(), each.about.text, each.genus) if v]
        for slot in slots:
            for _ in range(6):
                made = self.value(of.case.slots[slot].kind)
                low = made.lower()
                if not any(low in other or other in low for other in others if len(other) > 1 or other == low):
                    filled[slot] = made
                    others.append(low)
                    break
            else:
                return None
        return filled

    def said(self, form: str, fields: dict[str, str]) -> str:
        """A form as it is typed, perhaps without capitals and apostrophes. Values stay as they are."""
        shown = {}
        for name, text in fields.items():
            first, end = self.quoted.get(text, ("", "")) if "{" + name + "}'" not in form else ("", "")
            shown[name] = f"{first}{text}{end}"
        if self.writer.sloppy:
            form = re.sub(r"[\w{}]+'\w+", lambda m: _SLOPPY.get(m[0].lower(), m[0]), form)
            form = re.sub(r"\bI\b", "i", form)
        return cases.said(form, shown)

    # Statements

    def tell(self, of: Told) -> bool:
        """One or two statements of the case in a sentence."""
        rng, case = self.rng, of.case
        fresh = [s for s in case.tellable(self.wording) if not set(case.told_by(s)) & of.values.keys()]
        if not fresh:
            return False
        forms = [pick(rng, fresh)]
        more = [s for s in fresh if not set(case.told_by(s)) & set(case.told_by(forms[0]))]
        if more and rng.random() < 0.2:
            forms.append(pick(rng, more))
        filled = self.fill(of, [slot for form in forms for slot in case.told_by(form)])
        if filled is None:
            return False
        asked = [slot for form in forms for slot in case.asked(form, self.wording)]
        of.values |= {slot: filled[slot] for slot in asked}
        clauses = [self.said(form, of.fields | filled) for form in forms]
        if len(asked) == 1 and (nouns := case.slots[asked[0]].nouns) and rng.random() < 0.15:  # as a note
            clauses = [self.said(f"{pick(rng, nouns)}{pick(rng, _NOTED)}{{{asked[0]}}}", of.fields | filled)]
        if self.state([(of, slot) for slot in asked], clauses):
            return True
        for slot in asked:
            del of.values[slot]
        return False

    def state(self, told: list[tuple[Told, str]], clauses: list[str]) -> bool:
        """Say clauses as one sentence, perhaps with an opener and an end; they tell these slots."""
        rng, writer = self.rng, self.writer
        own = {key for of, _ in told for key in (*of.case.keys, of.about.key)}
        text = " ".join(clauses).lower()
        if any(key in text and re.search(rf"\b{re.escape(key)}\b", text) for key in writer.subjects - own):
            return False
        if self._answers_another(told, text):
            return False
        sentence, style = clauses[0], rng.random()
        for clause in clauses[1:]:
            sentence += writer.frame("joins") + clause
        if style < 0.16:
            lead = writer.frame("leads")
            asks = lead.startswith(("can you", "could you", "would you", "did I", "did you")) and "?" not in lead
            sentence = lead + sentence + ("?" if asks and rng.random() < 0.8 else "")
        elif style < 0.21:
            sentence = writer.frame("reasons") + sentence
        elif style < 0.28:
            sentence = sentence + writer.frame("tails")
        facts = [question for of, slot in told if (question := of.question(slot, self.wording)).asks]
        if not facts or not all(map(writer.free, facts)):
            return False
        self.say(sentence if writer.sloppy else capital(sentence), facts)
        self.last = told[0] if len(told) == 1 else None
        return True

    def _answers_another(self, told: list[tuple[Told, str]], text: str) -> bool:
        """Whether the sentence answers what is asked of another case, or the reverse."""
        mine = tuple({f"{of.case.name} " for of, _ in told})
        others = [k for k in self.writer.known.values() if not k.question.signature.startswith(mine)]
        words = stems(text)
        sentences = [stems(known.sentence) for known in others]
        asked = [stems(ask) for of, slot in told for ask in of.asks(slot, self.wording)]
        if any(ask <= sentence for ask in asked for sentence in sentences):
            return True
        return any(stems(ask) <= words for known in others for ask in known.question.asks)

    def several(self, told: list[Told]) -> bool:
        """One sentence about several subjects of a case: "Aroha sits by the window, Femi next to the door"."""
        rng, case = self.rng, told[0].case
        known = set().union(*(each.values for each in told))
        forms = [form for form in case.single(self.wording) if not known & {*case.told_by(form)}]
        if not forms:
            return False
        form = pick(rng, forms)
        slot, clauses = case.told_by(form)[0], []
        short = without_verb(form, "g" if case.mine else "x", slot) if rng.random() < 0.65 else None
        for each in told:
            filled = self.fill(each, [slot])
            if filled is None:
                break
            each.values |= filled
            own = short if clauses else None
            own = own or (form if rng.random() < 0.7 else pick(rng, case.single(self.wording, slot)))
            clauses.append(self.said(own, each.fields | filled))
        join = pick(rng, _JOINS)
        end = pick(rng, (" and ", ", and ", join)) if len(clauses) > 2 or join == ", " else join
        sentence = article(join.join(clauses[:-1]) + end + clauses[-1]) if len(clauses) == len(told) else ""
        if sentence and self.state([(each, slot) for each in told], [sentence]):
            self.last = None
            return True
        for each in told:
            each.values.pop(slot, None)
        return False

    def chat(self, share: float = 1.0) -> None:
        """A comment that tells nothing, in this message or in one of its own."""
        rng = self.rng
        if rng.random() > self.chatty * share:
            return
        if self.parts and rng.random() < 0.5:
            self.send()
        text = self.writer.frame("chatter")
        self.say(text if self.writer.sloppy else capital(text), [])
        self.last = None
        if rng.random() < 0.5:
            self.send()

    # Changes

    def change(self, of: Told, slot: str) -> bool:
        """A new value, in a sentence that says it is one, or that just tells it."""
        rng, made, case, writer = self.rng, of.case.slots[slot], of.case, self.writer
        if len(self.told) > 1 and rng.random() < 0.12:
            return self.exchange(of, slot)
        known, old = writer.known.get(of.signature(slot)), of.values[slot]
        if known is None or known.question.value.lower() != old.lower():
            return False
        back = known.previous is not None and rng.random() < 0.15
        filled = {slot: known.previous.question.value} if back and known.previous else self.fill(of, [slot])
        if filled is None:
            return False
        fields = of.fields | filled | {"o": old, "v": filled[slot]}
        others = [(e, s) for e in self.told for s in e.values if (e, s) != (of, slot)]
        rivals = any(alike(made.kind, e.case.slots[s].kind) for e, s in others)
        only = self.alone and len(self.told) == 1 and not case.genus
        own = [form for form in made.changes[self.wording] if only or names_case(form, case)]
        again = case.single(self.wording, slot)
        if only and not case.mine and rng.random() < 0.2:
            fields |= {"x": of.about.they, "xs": of.about.fields["xr"]}
            again = [form for form in again if form.startswith(("{x} ", "{xs} "))] or again
        adds = made.kind in _ADDED or case.name in _SEVERAL
        styles = ["own"] * 9 * bool(own) + ["restated"] * 4 * bool(again)
        styles += ["silent", "silent", "silent", "causes"] * (bool(again) and not adds)
        if not any(old in e.values[s] for e, s in others):
            styles += ["named"] * 3 + ["after_old"] * bool(again)
        if self.alone and self.last == (of, slot) and not rivals:
            styles += ["short"] * 3
        if not styles:
            return False
        style = "again" if back and again else pick(rng, styles)
        text = self.said(pick(rng, again), fields) if again else ""
        if style == "own":
            sentence = self.said(pick(rng, own), fields)
        elif style == "causes":
            sentence = writer.frame("causes") + text
        else:
            sentence = writer.frame(style).format(s=text, o=old, v=filled[slot])
        if style not in ("silent", "causes", "after_old") and rng.random() < 0.3:
            sentence = writer.frame("sorry") + sentence
        return self.changed([(of, slot, filled[slot])], sentence)

    def changed(self, new: list[tuple[Told, str, str]], sentence: str) -> bool:
        """Say that these have new values."""
        before = [of.values[slot] for of, slot, _ in new]
        for of, slot, text in new:
            of.values[slot] = text
        facts = [of.question(slot, self.wording) for of, slot, _ in new]
        if any(text not in sentence for _, _, text in new) or not all(fact.asks for fact in facts):
            for (of, slot, _), old in zip(new, before, strict=True):
                of.values[slot] = old
            return False
        self.say(sentence if self.writer.sloppy else capital(sentence), facts)
        self.last = new[0][:2] if len(new) == 1 else None
        return True

    def exchange(self, of: Told, slot: str) -> bool:
        """Two subjects exchange their values: "They swapped: Benno is captain and Ayasha keeps the goal"."""
        rng = self.rng
        others = [e for e in self.told if e is not of and slot in e.values and e.case is of.case]
        if not others:
            return False
        other, clauses = pick(rng, others), []
        pair = ((of, other.values[slot]), (other, of.values[slot]))
        for each, text in pair:
            known, forms = self.writer.known.get(each.signature(slot)), each.case.single(self.wording, slot)
            if known is None or known.question.value != each.values[slot] or not forms:
                return False
            clauses.append(self.said(pick(rng, forms), each.fields | {slot: text}))
        sentence = self.writer.frame("swaps") + pick(rng, (" and ", ", ", ", and ")).join(clauses)
        return self.changed([(each, slot, text) for each, text in pair], sentence)

    # Questions

    def ask(self, of: Told, slot: str) -> None:
        """Ask for what was told; now and then "how old is she", where no one else was told."""
        known = self.writer.known.get(of.signature(slot))
        if known is None or (known.asked and self.rng.random() < 0.6):
            return
        self.chat(0.5)
        asks = None
        if of.about.base and len(self.told) == 1 and self.rng.random() < 0.2:  # "the bike" for "the red bike"
            base = cases.subject(of.about.base).fields
            asks = of.asks(slot, self.wording, of.fields | {"x": base["x"], "xs": base["xs"]})
        elif len(self.told) == 1 and not of.case.mine and not self.asked and self.rng.random() < 0.15:
            fields = of.fields | {"x": of.about.they, "xs": of.about.fields["xr"]}
            after = _AFTER.get(of.about.they)
            asks = [after.sub(rf"\1 {of.about.fields['xo']}", ask) if after else ask for ask in of.asks(slot, self.wording, fields)]  # fmt: skip
        self.answered(known, asks)
        self.last = None

    def untold(self, of: Told) -> str | None:
        """A question without an answer, near to what was told; no sentence of the conversation has all of its words."""
        for _ in range(4):
            text = pick(self.rng, self._NEAR)(self, of)
            if text is None or re.sub(r" (the|my|our) ", " ", text.lower()) in self.writer.taken:
                continue
            known = [each for one in self.writer.known.values() for each in (one, one.previous) if each is not None]
            words = {word for word in stems(text) - _VAGUE if len(word) > 2}
            sentences = ["".join(self.parts), *(each.sentence for each in known)]
            if not any(words <= stems(sentence) for sentence in sentences):
                return text
        return None

    def _asks(self, of: Told, slots, fields: dict[str, str], named: str) -> str | None:
        """A question for one of these slots that names what it is about by one of these fields."""
        forms = [f for s in slots for f in of.case.slots[s].asks_of[self.wording] if re.search(named, f)]
        return article(pick(self.rng, forms).format_map(fields)) if forms else None

    def _other_slot(self, of: Told) -> str | None:
        return self._asks(of, [s for s in of.case.slots if s not in of.values], of.fields, "")

    def _not_of_case(self, of: Told) -> str | None:
        forms = [form for form in of.case.untold if split_of(f"untold {form}") == self.wording]
        return article(pick(self.rng, forms).format_map(of.fields)) if forms else None

    def _other_genus(self, of: Told) -> str | None:
        if not of.case.genus:
            return self._other_subject(of)
        other = pick(self.rng, of.case.genus)
        if self.rng.random() < 0.15 and " " not in of.genus:
            other = f"{pick(self.rng, cases.QUALIFIERS)} {other}"
        if self.writer.mentions(other) or re.search(rf"\b{re.escape(other)}\b", "".join(self.parts).lower()):
            return None
        return self._asks(of, of.values, of.fields | {"g": other}, r"\{g\}")

    def _other_subject(self, of: Told) -> str | None:
        if of.case.mine:
            return None
        similar = of.about.base and self.rng.random() < 0.6
        other = of.about.other(self.rng, self.split) if similar else draw(self.rng, self.split, of.case)
        if self.writer.mentions(other.key) or any(other.key == each.about.key for each in self.told):
            return None
        text = self._asks(of, of.values, other.fields | {"g": of.genus}, r"\{xs?\}")
        if text:
            self.writer.subjects.add(other.key)
        return text

    def _kin(self, of: Told) -> str | None:
        """A told matter of somebody's brother, wife or boss."""
        kin = self.writer.frame("kin")
        if not of.case.somebody or any(kin in each.about.text for each in self.told) or self.writer.mentions(kin):
            return None
        if kin in "".join(self.parts):
            return None
        owner = of.about.fields["xr"] if len(self.told) == 1 and self.rng.random() < 0.4 else f"{of.about.text}'s"
        whom = f"{owner} {kin}"
        fields = of.fields | {"x": whom, "xs": f"{whom}'s", "xo": "them", "xr": "their", "xp": "they"}
        text = self._asks(of, of.values, fields, r"\{xs?\}")
        if text:
            self.writer.subjects.add(kin)
        return text

    def _other_case(self, of: Told) -> str | None:
        """What another case asks of the same subject."""
        if not of.case.somebody or any(each is not of and each.about.key == of.about.key for each in self.told):
            return None
        other = pick(self.rng, self.pool)
        if not other.somebody or other.genus or other.area != of.case.area or asks_what_tells(other, of.case):
            return None
        forms = [form for slot in other.slots.values() for form in slot.asks_of[self.wording]]
        return article(pick(self.rng, forms).format_map(of.fields)) if forms else None

    _NEAR = (_other_slot, _other_slot, _not_of_case, _other_genus, _other_genus, _other_subject, _kin, _other_case)

    def refuse(self, of: Told) -> None:
        if text := self.untold(of):
            self.chat(0.3)
            self.refused(text)
            self.last = None

    def unsure(self, of: Told) -> bool:
        """Mention what is not known, and perhaps ask for it: "I forgot the code of the shed"."""
        slots = [s for s in of.case.slots if s not in of.values and of.case.slots[s].nouns and of.asks(s, self.wording)]
        if not slots:
            return False
        slot = pick(self.rng, slots)
        noun = article(pick(self.rng, of.case.slots[slot].nouns).format_map(of.fields))
        self.say(capital(self.writer.frame("unsure").format(n=noun)), [])
        self.last = None
        if self.rng.random() < 0.7:
            self.refused(pick(self.rng, of.asks(slot, self.wording)))
        return True

    def go_on(self) -> None:
        """Change and ask, a few times."""
        rng, writer = self.rng, self.writer
        for _ in range(1 + int(rng.random() ** 1.4 * 4.5)):
            of = pick(rng, self.told)
            slot, act = pick(rng, list(of.values)), rng.random()
            if act < 0.36 and self.change(of, slot):
                self.chat(0.4)
                if rng.random() < 0.6:
                    self.send()
                if rng.random() < 0.8 * writer.asks_at_once:
                    self.ask(of, pick(rng, list(of.values)) if rng.random() < 0.25 else slot)
            elif rng.random() < 0.95 * writer.asks_at_once:
                if rng.random() < 0.3:
                    if rng.random() > 0.15 or not self.unsure(of):
                        self.refuse(of)
                else:
                    self.ask(of, slot)
        self.send()
        for of in self.told:
            if rng.random() < 0.3 and (text := self.untold(of)):
                writer.missing.append(text)


def unprepared(writer: Writer, pool: dict[str, list[Case]]) -> Turn:
    """A question before anything was told."""
    case = pick(writer.rng, pool[writer.wording])
    asks = [ask for slot in case.slots.values() for ask in slot.asks_of[writer.wording]]
    told = Told(case, draw(writer.rng, writer.split, case), pick(writer.rng, case.genus or ("",)))
    return writer.refusal(article(pick(writer.rng, asks).format_map(told.fields)))


def play(writer: Writer, pool: dict[str, list[Case]], twins: float) -> int:
    """Tell cases, or come back to earlier ones; returns the number of questions. twins: share that has something near next to it."""
    rng = writer.rng
    if writer.earlier and rng.random() < 0.15:
        telling = pick(rng, writer.earlier)
        telling.alone, telling.last, telling.asked = False, None, 0
        telling.go_on()
        return telling.asked
    telling = Telling(writer, pool)
    telling.chat(0.7)
    one = telling.begin()
    if one is None:
        telling.send()
        return 0
    if rng.random() < twins:
        for _ in range(1 + (rng.random() < 0.3)):
            telling.twin(one)
        if len(telling.told) > 1 and rng.random() < 0.6:
            telling.several(telling.told)
    else:
        for _ in range(below(rng, 3) if rng.random() < 0.4 else 0):  # quite other things in the same message
            telling.begin()
    for each in telling.told:
        for _ in range(1 + int(rng.random() * 1.7)):
            if not each.values or rng.random() < 0.6:
                telling.tell(each)
        telling.chat(0.4)
        if rng.random() < 0.25:
            telling.send()
    telling.told = [each for each in telling.told if each.values]
    if not telling.told:
        telling.send()
        return 0
    writer.earlier.append(telling)
    telling.go_on()
    return telling.asked
