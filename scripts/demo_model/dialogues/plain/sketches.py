"""Short sketches: one or two subjects, a few constituents of each, and at once a question for one that was told or for one that was not.

Sentences are composed: a subject and its verb with any of its adjuncts in any order, or clauses joined by "and". So the same words
stand beside many others, and only the constituents say what can be asked. A change names the subject, the value before, or
nothing but the new value, right behind the old one.
"""

from .. import texts
from ..phrases import Fact, Phrase, capital
from ..splits import SPLITS, pick, split_of
from . import topics
from .sketch_blocks import BY_SPLIT, Block, Sketched, article, draw_subject, fields
from .sketch_questions import SketchQuestions

_NAMED = [(form, split_of(f"named change {form}")) for form in texts.read("changes_named").strip().splitlines()]
NAMED = {split: [form for form, of in _NAMED if of == split] for split in SPLITS}
_RESTATED = "{s} now|from now on {s}|update: {s}|correction: {s}|actually {s}|no, {s}|change of plan: {s}|so now {s}|{s} after all|news: {s}|turns out {s}".split(
    "|"
)


class Sketch(SketchQuestions):
    """Writes one sketch into a conversation."""

    def draw(self, like: Block | None = None) -> Sketched | None:
        block = like or pick(self.rng, BY_SPLIT[self.wording])
        about = draw_subject(self.rng, self.split, block)
        if self.writer.mentions(about.key):
            return None
        self.writer.subjects.add(about.key)
        return Sketched(block, about)

    def values(self, of: Sketched, count: int) -> list[str]:
        """New values for up to so many roles that were not told; returns the roles."""
        rng, fresh = self.rng, [r for r in of.block.tellable(self.wording) if r not in of.values]
        chosen: list[str] = []
        for _ in range(min(count, len(fresh))):
            role = pick(rng, [r for r in fresh if r not in chosen])
            value = topics.value(rng, self.split, of.block.roles[role].kind)
            taken = " | ".join([*of.values.values(), of.about.text]).lower()
            if value.lower() in taken or any(v.lower() in value.lower() for v in of.values.values()):
                continue
            of.values[role] = value
            chosen.append(role)
        return chosen

    def tell(self, of: Sketched, count: int) -> list[str]:
        """A sentence about it, of one or more constituents."""
        rng, split = self.rng, self.wording
        roles = self.values(of, count)
        if not roles:
            return []
        known = fields(of.about)
        name = (
            of.about.text
            if not of.values.keys() - set(roles) or rng.random() < 0.5 or len(self.drawn) > 1
            else known["they"]
        )
        together = [r for r in roles if of.block.roles[r].adjuncts[split]]
        if together and (rng.random() < 0.6 or not of.block.roles[together[0]].clauses[split]):
            parts = [
                pick(rng, of.block.roles[r].adjuncts[split]).format_map({**known, "v": of.values[r]}) for r in together
            ]
            verb = pick(rng, of.block.verbs)
            if len(parts) > 1 and rng.random() < 0.15:
                sentence = f"{parts[0]}{pick(rng, [',', ''])} {name} {verb} {' '.join(parts[1:])}"
            else:
                sentence = f"{name} {verb} {' '.join(parts)}"
            told = together
        else:
            told = [r for r in roles if of.block.roles[r].clauses[split]][:3]
            parts = [pick(rng, of.block.roles[r].clauses[split]).format_map({**known, "v": of.values[r]}) for r in told]
            sentence = f"{name} {parts[0]}" + "".join(
                f"{pick(rng, [' and ', ', and ', ' and also ', ', but '])}{p}" for p in parts[1:]
            )
        if not told or not self.state(of, told, sentence):
            told = []
        for role in set(roles) - set(told):
            del of.values[role]
        return told

    def state(self, of: Sketched, roles: list[str], sentence: str, other: tuple[Sketched, str] | None = None) -> bool:
        """Say a sentence that tells these roles, and one of another subject, if given."""
        questions = [of.question(role, self.wording) for role in roles]
        if other:
            questions.append(other[0].question(other[1], self.wording))
        phrase = Phrase(of.about.text, of.about.key, "story")
        facts = [Fact(capital(sentence), [q], phrase, None, [], "", "topic sketch") for q in questions if q.direct]
        if not all(self.writer.free(fact) for fact in facts):
            return False
        self.say(article(capital(sentence)), [(fact, "") for fact in facts])
        return bool(facts)

    def parallel(self, one: Sketched, other: Sketched) -> list[str]:
        """ "The blue folder holds bills and the red folder holds letters": one role of two subjects in a sentence."""
        rng, split = self.rng, self.wording
        roles = [r for r in self.values(one, 1) if one.block.roles[r].clauses[split]]
        if not roles:
            one.values.clear()
            return []
        role = roles[0]
        made = one.block.roles[role]
        value = topics.value(rng, self.split, made.kind)
        if value.lower() in one.values[role].lower() or one.values[role].lower() in value.lower():
            one.values.clear()
            return []
        other.values[role] = value
        clause = pick(rng, made.clauses[split])
        halves = [
            f"{who.about.text} {clause.format_map({**fields(who.about), 'v': who.values[role]})}"
            for who in (one, other)
        ]
        ok = self.state(
            one, [role], pick(rng, [" and ", ", ", " while ", " but ", "; ", ", and "]).join(halves), (other, role)
        )
        if not ok:
            one.values.clear()
            other.values.clear()
        return [role] if ok else []

    # Changes

    def change(self, of: Sketched, role: str) -> bool:
        """A new value, in a sentence that names the subject, or the old value, or nothing else, right behind the old one."""
        rng, made = self.rng, of.block.roles[role]
        known = self.writer.known.get(of.signature(role))
        if known is None or known.fact is None or known.question.value.lower() != of.values[role].lower():
            return False
        new, old = topics.value(rng, self.split, made.kind), of.values[role]
        told = [v.lower() for each in self.drawn for v in each.values.values()]
        if any(v in new.lower() or new.lower() in v for v in told):
            return False
        slots = fields(of.about, v=new, o=old)
        alone = len(self.drawn) == 1
        rivals = [
            r
            for each in self.drawn
            for r in each.values
            if (each, r) != (of, role) and topics.alike(each.block.roles[r].kind, made.kind)
        ]
        forms = [form.format_map(slots) for form in made.changes[self.wording]]
        if not alone or rivals:  # nothing but the value before says what is meant
            forms = [form for form in forms if old in form]
        named = [form.format_map(slots) for form in NAMED[self.wording]]
        said = [f"{of.about.text} {clause.format_map(slots)}" for clause in made.clauses[self.wording]]
        restated = [pick(rng, _RESTATED).format(s=s) for s in said]
        style = rng.random()
        chosen = forms if forms and style < 0.45 else restated if restated and style < 0.75 else named
        if not chosen:
            return False
        sentence = article(pick(rng, chosen))
        if new not in sentence:
            return False
        of.values[role] = new
        phrase = Phrase(of.about.text, of.about.key, "story")
        fact = Fact(capital(sentence), [of.question(role, self.wording)], phrase, None, [], "", "topic sketch")
        self.say(capital(sentence), [(fact, old)])
        return True


def play(writer) -> int:
    """Append a sketch to the conversation; returns the number of its questions."""
    rng, sketch = writer.rng, Sketch(writer)
    sketch.drawn = []
    one = sketch.draw()
    if one is None:
        return 0
    sketch.drawn.append(one)
    if rng.random() < 0.3 and (other := sketch.draw(one.block if rng.random() < 0.6 else None)) is not None:
        sketch.drawn.append(other)
        if other.block is one.block and rng.random() < 0.6:
            sketch.parallel(one, other)
    for each in sketch.drawn:
        for _ in range(1 + int(rng.random() * 1.6)):
            sketch.tell(each, 1 + int(rng.random() * 2.6))
    sketch.drawn = [each for each in sketch.drawn if each.values]
    if not sketch.drawn:
        sketch.send()
        return 0
    for _ in range(1 + int(rng.random() * 2.2)):
        of = pick(rng, sketch.drawn)
        if not of.values:
            continue
        role = pick(rng, list(of.values))
        if rng.random() < 0.4 and sketch.change(of, role):
            if rng.random() < 0.5:
                sketch.send()
            if rng.random() < 0.7 * writer.asks_at_once:
                sketch.answered(of, role)
        elif rng.random() < 0.9 * writer.asks_at_once:
            if rng.random() < 0.4:
                sketch.refuse(of)
            else:
                sketch.answered(of, role)
    sketch.send()
    return sketch.asked
