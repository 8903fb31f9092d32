"""Reads a conversation as a person would, from only its messages, and says which answers it cannot derive.

It knows nothing of the generator: sentences, pronouns, the shapes of values and the formats of tables are read here anew.
"""

import re
from dataclasses import dataclass, replace
from itertools import pairwise

from support import english, tables

NOT_TOLD = "You have not told me that in this chat."
_SAID = re.compile(r"^(?P<value>.+?)\. (?P<who>You said|Your text says): (?P<quote>.+)$", re.DOTALL)
_FIRST_STEP = re.compile(
    r"^(?P<value>.+?) is only the first step\. You said: (?P<quote>.+) Turn thinking on for the next one\.$", re.DOTALL
)
_COUNTED = re.compile(r"^(?P<value>\d+)\. Your text lists: (?P<names>.+)\.$", re.DOTALL)


_UNDONE = re.compile(
    r"stays? (as|the same)|nothing changes|nothing changed|no change|undo that change|ignore|cancel that|first one was right"
    r"|right the first time\.?$|right before|forget what I just said|forget that, it stays",
    re.IGNORECASE,
)
_CORRECTS = re.compile(
    r"(no wait|actually make|make that|make it|scratch that|sorry, i meant|i meant|i mean|correction|typo)\b(\W+\S+){1,3}$",
    re.IGNORECASE,
)
_NO_TITLE = r"(?<!\b[DMdm]r)(?<!\b[Mm]s)(?<!\b[Mm]rs)(?<!\b[Pp]rof)"
_AFTER_END = re.compile(r"\n|(?<=[.!?])" + _NO_TITLE.replace(")", r"\.)") + " ")
_ORDINALS = ("first", "second", "third", "fourth", "fifth")
_ORDINAL = re.compile(rf"\b({'|'.join(_ORDINALS)}|last)\b", re.IGNORECASE)
_BACK = re.compile(r"\b(she|he|they|it|her|his|him|them|she's|he's|they're|it's|theirs|its|their)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Sentence:
    text: str
    at: int  # its place in everything that the user wrote
    turn: int
    asks: bool = False


class Reader:
    """complaints: one line for each answer that does not follow from what the user wrote."""

    def __init__(self, messages: list[dict], stories: bool, synonyms: bool = False):
        self.stories = stories  # whether nothing but stories states facts, so that each correction can be followed
        self.synonyms = synonyms  # whether the user asks about his own things in other words than he told them
        self.complaints: list[str] = []
        self.read = {
            "stated": 0,
            "updated": 0,
            "refused": 0,
            "two hops": 0,
            "table": 0,
            "counted": 0,
            "compared": 0,
            "correction": 0,
        }
        self.heard, self.turn = "", 0
        self.sentences: list[Sentence] = []
        for one, other in pairwise(messages):
            if one["role"] == "user" and other["role"] == "assistant" and not other.get("tool_calls"):
                self._hear(one["content"])
                self._check(one["content"], other["content"], other.get("reasoning_content", ""))

    def _hear(self, text: str) -> None:
        start = len(self.heard)
        self.heard += text + "\n"
        for match in re.finditer(rf"[^\n]+?(?:{_NO_TITLE}[.!?]+(?= |\n|$)|(?=\n)|$)", text):
            text_ = match[0].strip()
            self.sentences.append(Sentence(text_, start + text.index(text_, match.start()), self.turn))
        self.turn += 1
        self.message = (start, text)

    def _check(self, asked: str, answer: str, thought: str) -> None:
        question = _AFTER_END.split(asked.strip())[-1]
        if answer not in ("Noted.", "I have read it. Ask me about it."):
            quote = _SAID.match(answer)
            inside = (
                question.find(quote["quote"].split(" Before: ")[0]) if quote else -1
            )  # a fact and its question in one sentence
            begins = self.message[0] + asked.rfind(question) + (inside + 1 if inside >= 0 else 0)
            self.sentences = [replace(s, asks=True) if s.at >= begins else s for s in self.sentences]
        wrong = None
        if answer == NOT_TOLD:
            self.read["refused"] += 1
            wrong = self._told_after_all(question)
        elif match := _FIRST_STEP.match(answer):
            self.read["two hops"] += 1
            wrong = (
                None
                if match["quote"] in self.heard and english.said(match["value"], match["quote"])
                else "the first step is not what was said"
            )
        elif match := _COUNTED.match(answer):
            self.read["counted"] += 1
            wrong = self._miscounted(question, int(match["value"]), match["names"])
        elif match := _SAID.match(answer):
            wrong = self._quoted(question, match, thought)
        if wrong:
            self.complaints.append(f"{wrong}: {asked[-160:]!r} -> {answer[:200]!r}")

    def _quoted(self, question: str, match: re.Match, thought: str) -> str | None:
        quote, before, now = match["quote"], "", ""
        if quote not in self.heard and " Before: " in quote:
            quote, before = quote.rsplit(" Before: ", 1)
        if quote not in self.heard and " Now: " in quote:
            quote, now = quote.rsplit(" Now: ", 1)
        before, now, at = before.removesuffix("."), now.removesuffix("."), self.heard.rfind(quote)
        if at < 0:
            return "the quote was never said"
        if not english.said(match["value"], quote):
            return "the value is not in the quote"
        if before and (before == match["value"] or not english.said(before, self.heard[: at + len(quote)])):
            return "the value before was never said"
        if now and not english.said(now, self.heard[at:]):
            return "the value now was never said"
        if thought.startswith("First: "):
            self.read["two hops"] += 1
            return self._hops(thought, quote)
        if match["who"] == "Your text says":
            return self._looked_up(question, match["value"], quote)
        self.read["updated" if before else "stated"] += 1
        return self._corrected(question, match["value"], quote, at, before, now) if self.stories else None

    def _hops(self, thought: str, quote: str) -> str | None:
        first, _, second = thought.removeprefix("First: ").partition(" Then: ")
        if second != quote or first not in self.heard:
            return "the thought quotes what was never said"
        linked = english.names(first) & english.names(second)
        follows = self.heard.find(second) - self.heard.find(first) - len(first) in range(5)
        if not linked and not (follows and _BACK.match(second)):
            return "the two steps name nothing in common"
        return None

    # Refusals and corrections

    def _told_after_all(self, question: str) -> str | None:
        """Tell whether a sentence has every word of the question that was refused."""
        words = english.stems(question)
        for sentence in self.sentences:
            if sentence.asks or not english.could_answer(question, sentence.text):
                continue
            cells = (
                re.split(r"[|;,\t{}]| {2,}", re.sub(r'"\w+": ', "", sentence.text))
                if re.search(r"[|;\t{]|, ?.*,| {2,}", sentence.text)
                else []
            )
            if (
                cells
                and sum(
                    tables.has_key(cell.strip('" '), question.lower()) for cell in cells if len(cell.strip('" ')) > 1
                )
                < 2
            ):
                continue  # a row of a table, and not the one that was asked for
            owners = {name.lower() for name in re.findall(r"([\w-]+)'s\b", sentence.text)}
            if (
                re.search(r"\b(my|our)\b", question)
                and owners
                and not any(owner in question.lower() for owner in owners)
            ):
                continue  # somebody else's
            if len(words) > 1 and words <= english.stems(sentence.text) and "?" not in sentence.text:
                return f"refused, but {sentence.text!r} was said"
        return None

    def _corrected(self, question: str, value: str, quote: str, at: int, before: str, now: str) -> str | None:
        """Follow a correction back to what names the subject; look for a later one that was missed."""
        if (line := re.match(r"(\d+)([.)]) ", quote)) and (asked := _ORDINAL.search(question)):
            return self._numbered(int(line[1]), quote, at, asked[0].lower())
        here = max((n for n, s in enumerate(self.sentences) if s.at <= at + 1), default=0)
        words, wanted = english.related(question), english.shape(value)
        told = [s for s in self.sentences if not s.asks and not _UNDONE.search(s.text)]
        if (
            _BACK.search(question) and told and told[-1].at >= self.sentences[here].at
        ):  # "where is it": what was said last
            return None
        if not now and (later := self._later(here, quote, value, wanted)):
            return f"missed {later!r}"
        about, steps = here, 0
        if self._fits(question, words, quote):
            return None
        while not self._fits(question, words, self.sentences[about].text):
            found = self._antecedent(about, wanted, quote if not steps else self.sentences[about].text)
            if found is None or steps > 6:
                if any(before and before in s.text and self._fits(question, words, s.text) for s in told):
                    return None
                if self.synonyms and (now or not any(self._has_words_of(question, s.text) for s in told)):
                    return None
                return "the quote names nothing of the question, nor does what it corrects"
            about, steps = found, steps + 1
        self.read["correction"] += steps > 0
        return None

    def _numbered(self, number: int, quote: str, at: int, ordinal: str) -> str | None:
        """Tell whether a line of a numbered list is the one that is asked for."""
        following = self.heard[at + len(quote) :].lstrip("\n")
        last = re.match(rf"{number + 1}[.)] ", following) is None
        right = last if ordinal == "last" else _ORDINALS.index(ordinal) + 1 == number
        return None if right else "the quote is another line of the list"

    def _fits(self, question: str, words: set[str], sentence: str) -> bool:
        """Tell whether they share a word, perhaps mistyped, or both speak of the user: one of them says "I" or "we"."""
        if english.shared(english.related(sentence), words) or self._mine(question, sentence):
            return True
        letters = re.sub(r"\W", "", question.lower())
        return any(word in letters for word in re.findall(r"[a-z]{3,}", sentence.lower()) if word not in english.SMALL)

    def _has_words_of(self, question: str, sentence: str) -> bool:
        """Tell whether a sentence has all words of a question and could answer it, or a name in it."""
        words, names = english.stems(question), re.findall(r"(?<=\w )[A-Z]\w+|\w+(?='s )", question)
        named = any(re.search(rf"\b{name}\b", sentence) for name in names if name.lower() not in english.SMALL)
        return named or (
            len(words) > 1 and words <= english.stems(sentence) and english.could_answer(question, sentence)
        )

    def _mine(self, question: str, sentence: str) -> bool:
        texts = (question.lower(), sentence.lower())
        own = all(re.search(r"\b(i|my|i'm|im|me|we|us|our)\b", text) for text in texts)
        return own and any(re.search(r"\b(i|i'm|im|we|us|me)\b", text) for text in texts)

    def _antecedent(self, at: int, wanted: str, sentence: str) -> int | None:
        """The sentence before that a correction can mean: the latest with a value of its shape and a subject of its gender."""
        pronoun = _BACK.search(sentence)
        who = pronoun[0].lower() if pronoun else ""
        for n in range(at - 1, -1, -1):
            text = self.sentences[n].text
            if not re.search(r"\w", text):
                continue
            words = {w.strip(".,!':;").removesuffix("'s") for w in text.lower().split()}
            if who in ("she", "her", "she's") and words & english.MALE - english.FEMALE and not words & english.FEMALE:
                continue
            if (
                who in ("he", "him", "his", "he's")
                and words & english.FEMALE - english.MALE
                and not words & english.MALE
            ):
                continue
            return n
        return None

    def _later(self, here: int, quote: str, value: str, wanted: str) -> str | None:
        """The sentence after the quote, if it corrects it and is not taken back."""
        follow = [s for s in self.sentences[here + 1 :] if s.at >= self.sentences[here].at + len(quote)]
        if (
            not follow or follow[0].asks or re.search(r"\bI('m|'ve)?\b", follow[0].text)
        ):  # a correction after a question corrects its answer
            return None
        text = follow[0].text
        if text.endswith("?"):  # "10 May? no, 11 May": the next sentence is the correction
            return None
        if _CORRECTS.match(text) and english.shape(text) == wanted and value.lower() not in text.lower():
            undone = len(follow) > 1 and (_UNDONE.search(follow[1].text) or value.lower() in follow[1].text.lower())
            return None if undone else text
        return None

    # Tables

    def _table(self, line: str | None, question: str) -> tables.Table | None:
        """(headers, rows, lines) of the pasted table that has the line, or whose title the question names."""
        for message in reversed(re.split(r"(?<=\n)(?=[^\n]*\n)", self.heard) and self._messages()):
            lines = message.split("\n")
            if line is not None and line not in [text.strip() for text in lines]:
                continue
            found = tables.parse_table(lines)
            if found and (line is not None or english.shared(english.stems(lines[0]), english.stems(question))):
                return found
        return None

    def _messages(self) -> list[str]:
        ends = [s.at for s in self.sentences]
        turns: dict[int, int] = {}
        for sentence, start in zip(self.sentences, ends, strict=True):
            turns.setdefault(sentence.turn, start)
        starts = [*turns.values(), len(self.heard)]
        return [self.heard[a:b] for a, b in pairwise(starts)]

    def _looked_up(self, question: str, value: str, line: str) -> str | None:
        self.read["table"] += 1
        table = self._table(line, question)
        if table is None or not self.stories:
            return None
        found, compared = tables.disagrees(table, question, value, line)
        self.read["compared"] += compared
        return found

    def _miscounted(self, question: str, count: int, names: str) -> str | None:
        table = self._table(None, question)
        if table is None:
            return "no table was pasted"
        _, rows, _ = table
        return (
            None
            if len(rows) == count and names == ", ".join(f"{row[0]} {row[1]}" for row in rows)
            else f"the table has {len(rows)} rows"
        )
