"""What somebody or something does or is: "Anna lives in Oslo"."""

import re

from .phrases import ME, WE, Fact, Phrase, Question, ask_be, be, capital, conjugate, do, owned
from .predicates import Predicate
from .splits import pick
from .subjects import Subjects

# What follows the value in a question, too: "what does Anna use as provider".
_KEPT = ("of", "from", "for", "on", "in", "as", "to", "a", "an", "from")


class Verbs(Subjects):
    """Draws sentences of one verb and one value."""

    def predicate(
        self, predicate: Predicate | None = None, subject: Phrase | None = None, value: str | None = None
    ) -> Fact:
        """ "Anna lives in Oslo", "The ferry leaves at 8:15", "We pay 40 euros"."""
        rng = self.rng
        predicate = predicate or pick(rng, self.wording.predicates)
        kind = pick(rng, predicate.subjects)
        if subject is None:
            subject = self.phrase(kind)
            if (
                kind == "person"
                and rng.random() < 0.25
                and not re.search(r"\b(me|us|his)\b", f"{predicate.verb} {predicate.before}{predicate.after}")
            ):
                subject = ME if rng.random() < 0.8 else WE
        value = value or self.value(predicate.value_type)
        before = predicate.before
        if before.endswith("a ") and value[:1].lower() in "aeiou":
            before += "n "
            before = before.replace("a n ", "an ")
        tail = f"{before}{value}{predicate.after}"
        tense = "present" if rng.random() < 0.7 else "past" if rng.random() < 0.7 else "future"
        verb = conjugate(predicate, subject, tense)
        adverb = pick(rng, self.wording.adverbs) if rng.random() < 0.2 else ""
        if adverb and predicate.verb.split()[0] == "be":
            body = f"{verb} {adverb} {tail}"
        else:
            body = f"{adverb} {verb} {tail}" if adverb and tense == "present" else f"{verb} {tail}"
        sentence = f"{capital(subject.text)} {body}"
        if before in ("at ", "on ", "in ") and predicate.verb != "be" and not predicate.after and rng.random() < 0.08:
            sentence = f"{capital(before)}{value}{pick(rng, [',', '', ','])} {subject.text} {verb}"
        signature = f"{predicate.name}|{subject.key}"
        question = self._predicate_questions(predicate, subject, value, signature, tense)
        if rng.random() < 0.2:  # asked in another tense than it was said
            other = self._predicate_questions(
                predicate, subject, value, signature, pick(rng, ["present", "past", "future"])
            )
            question.direct += other.direct
        if rng.random() < 0.3:  # whether, which is answered with what is true
            said = value if rng.random() < 0.6 else self.value(predicate.value_type)
            tail = f"{predicate.before}{said}{predicate.after}"
            question.direct.append(
                f"{be(subject, tense)} {subject.text} {tail}"
                if predicate.verb == "be" and tense != "future"
                else f"{do(subject, tense)} {subject.text} {predicate.verb} {tail}"
            )
        question.kind, question.topics = predicate.value_type, question.short if predicate.nouns else []
        question.changes = self._verb_changes(predicate, subject, value, tense)
        gap_verb = predicate.verb == "be" or subject.person == 1
        return Fact(
            sentence, [question], subject, lambda rng, split: self.predicate(predicate, subject),
            [form for noun in predicate.nouns for form in owned(noun, subject)], "" if gap_verb else f"{subject.text} {tail}",
            f"{predicate.name} {tense}",
        )  # fmt: skip

    def _verb_changes(self, predicate: Predicate, subject: Phrase, value: str, tense: str) -> list[str]:
        rng, frame = self.rng, f"{predicate.before}{{new}}{predicate.after}"
        fields = {
            "s": subject.text, "v": conjugate(predicate, subject, tense), "b": predicate.verb, "n": frame, "do": do(subject, tense),
            "o": f"{predicate.before}{value}{predicate.after}",
        }  # fmt: skip
        key = " be" if predicate.verb == "be" else "" if subject.kind == "person" else " thing"
        forms = self.wording.verb_changes[tense + key]
        return [
            pick(rng, forms).format_map(fields),
            *(
                [form.format(s=subject.text) for form in predicate.changes]
                if subject.person == 3 and not subject.plural
                else []
            ),
        ]

    def _predicate_questions(
        self, predicate: Predicate, subject: Phrase, value: str, signature: str, tense: str
    ) -> Question:
        direct, indirect, described = [], [], []
        s = subject.text
        verb, before, after = predicate.verb, predicate.before, predicate.after
        preposition = before.strip()
        after_verb = after.strip() if after.strip().split(" ", 1)[0] in _KEPT else ""
        for wh in predicate.wh:
            # "where" swallows the preposition; "which town" and "who" leave it at the end.
            named = wh.split()[-1]  # "which code does S have", "which page is S on"
            preposition = re.sub(rf"\s*\b(the )?{named}$|\b(a|an|the)$", "", before.strip()).strip()
            stranded = (
                ""
                if wh in ("where", "when", "how", "why", "what time", "what day") or wh.startswith("how ")
                else preposition
            )
            if wh.startswith("how many"):
                stranded = ""
            if stranded in ("a", "the", "an", "a "):
                stranded = ""
            stranded = stranded.removesuffix(" a").removesuffix(" the").removesuffix(" size")
            rest = after_verb if wh.split()[0] not in ("how",) else ""
            if wh.startswith("how ") and (words := wh.split()[1:]):
                rest = ""
                if verb == "be":  # how old is S, how many people is S limited to, how long is S late
                    end = (
                        preposition
                        if words[0] == "many"
                        else ""
                        if words[0] == "much"
                        else preposition.rpartition(" ")[0]
                    )
                    direct.append(f"{ask_be(wh, subject, tense)} {end}".strip())
                    indirect.append(f"{wh} {s} {be(subject, tense)} {end}".strip())
                    continue
                keep = before.strip()  # "how much does Anna owe me"
                if keep in ("the", "a"):
                    keep = ""
                direct.append(f"{wh} {do(subject, tense)} {s} {verb} {keep}".strip())
                indirect.append(f"{wh} {s} {conjugate(predicate, subject, tense)} {keep}".strip())
                continue
            if verb == "be":
                extra = preposition
                for lost in ("in", "at", "on", "from"):
                    if wh.split()[0] in ("where", "when") or wh in ("what time", "what day", "which day"):
                        extra = extra.removesuffix(lost).strip()
                if wh.startswith("wh") and wh in ("what colour", "which colour"):
                    extra = ""
                tail = f"{extra} {rest}".strip()
                direct.append(f"{ask_be(wh, subject, tense)} {tail}".strip())
                indirect.append(f"{wh} {s} {be(subject, tense)} {tail}".strip())
            else:
                tail = f"{stranded} {rest}".strip()
                if wh in ("where", "when", "how", "why", "what time", "what day", "which day"):
                    words = preposition.split()
                    tail = (
                        " ".join(words[:-1])
                        if len(words) > 1 and words[-1] in ("in", "at", "on", "to", "for", "from", "by")
                        else ""
                    )
                    if wh == "where" and preposition in ("from",):
                        tail = "from"
                direct.append(f"{wh} {do(subject, tense)} {s} {verb} {tail}".strip())
                indirect.append(f"{wh} {s} {conjugate(predicate, subject, tense)} {tail}".strip())
                if wh.startswith("which") and stranded:
                    direct.append(f"{stranded} {wh} {do(subject, tense)} {s} {verb}")
        if subject.person == 3:
            direct += [
                form.format(s=s, do=do(subject, tense), be=be(subject, tense))
                for form in predicate.questions
                if tense != "future" or "{be}" not in form
            ]
        short = []
        for noun in predicate.nouns:
            forms = owned(noun, subject)
            direct += (
                [f"what is {form}" for form in forms[:2]]
                if predicate.value_type != "person"
                else [f"who is {form}" for form in forms[:2]]
            )
            short += forms
            described += forms
        person = predicate.value_type == "person"
        if preposition and verb != "be" and not after:
            head = (
                "person"
                if person
                else {"town": "town", "org": "place", "company": "company", "place": "place"}.get(predicate.value_type)
            )
            if head:
                described.append(f"the {head} {s} {conjugate(predicate, subject, tense)} {preposition}")
        key = subject.key
        aliases = [f"{noun}|{key}" for noun in predicate.nouns]
        if verb == "be" or subject.kind in ("event", "bare"):
            aliases += [f"{wh.split()[0]}|{key}" for wh in predicate.wh if wh.split()[0] in ("where", "when", "who")]
        return Question(
            signature, value, direct, indirect, short or [f"{s} {predicate.wh[0]}"], described, tuple(aliases)
        )
