"""Reads a conversation as a person would, from only its messages, and says which answers it cannot derive.

It knows nothing of the generator: sentences, what questions name, the looks of values and the formats of tables are read here anew.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise

from support import english, tables

NOT_TOLD = "You have not told me that in this chat."
_NO_FACT = ("Noted.", "I have read it. Ask me about it.", "I call a function.")
_SAID = re.compile(r"^(?P<value>.+?)\. (?P<who>You said|Your text says): (?P<quote>.+)$", re.DOTALL)
_FIRST_STEP = re.compile(
    r"^(?P<value>.+?) is only the first step\. You said: (?P<quote>.+) Turn thinking on for the next one\.$", re.DOTALL
)
_COUNTED = re.compile(r"^(?P<value>\d+)\. Your text lists: (?P<names>.+)\.$", re.DOTALL)
_CORRECTS = re.compile(
    r"(no wait|make that|make it|scratch that|sorry, i meant|i meant|i mean|correction|typo)\b(\W+\S+){1,3}$",
    re.IGNORECASE,
)
_NO_TITLE = r"(?<!\b[DMdm]r)(?<!\b[Mm]s)(?<!\b[Mm]rs)(?<!\b[Pp]rof)(?<!\bSt)(?<! [A-Z])"
_END = re.compile(rf"[^\n]+?(?:{_NO_TITLE}[.!?]+(?= |\n|$)|(?=\n)|$)")
_BACK = re.compile(r"\b(she|he|they|it|her|his|him|them|she's|he's|they're|it's|its|their)\b", re.IGNORECASE)
_CLAUSES = re.compile(
    r", and |, plus |, then |, but |, while |, whereas |, also | and | but | while | whereas |; |, |\n"
)
_UNKNOWN = re.compile(
    r"forgot|forget|remember|find out|told (me|anyone)|know|tomorrow|have to (look|check)|no idea|wonder|waiting|write down"
    r"|going to tell|lost the|argued|secret|still open|not been|let's not|no answer|announced|left at home|dreamt|discuss"
    r"|mistake|important to|I like",
    re.IGNORECASE,
)
_ASKS = re.compile(r"\b(what|which|who|whose|whom|where|when|how|whats|wheres|whos)\b", re.IGNORECASE)
_ORDINALS = ("first", "second", "third", "fourth", "fifth")
_ORDINAL = re.compile(rf"\b({'|'.join(_ORDINALS)}|last)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Sentence:
    text: str
    at: int  # its place in everything that the user wrote
    turn: int
    asks: bool = False


class Reader:
    """complaints: one line for each answer that does not follow from what the user wrote.

    exact: the user asks in the words in which he told things, so that every word that names one must have been said of it;
    otherwise only owners and other names. in_clauses: a value stands in one clause with what it is of.
    """

    def __init__(self, messages: list[dict], exact: bool = True, in_clauses: bool = False):
        self.exact, self.in_clauses = exact, in_clauses
        self.complaints: list[str] = []
        kinds = ("stated", "updated", "refused", "two hops", "table", "counted", "compared", "correction")
        self.read = dict.fromkeys(kinds, 0)
        self.heard, self.turn = "", 0
        self.sentences: list[Sentence] = []
        self.answered: set[str] = set()  # questions that had an answer
        for one, other in pairwise(messages):
            if one["role"] == "user" and other["role"] == "assistant" and not other.get("tool_calls"):
                self._hear(one["content"])
                self._check(one["content"], other["content"], other.get("reasoning_content", ""))

    def _hear(self, text: str) -> None:
        self.start = len(self.heard)
        self.heard += text + "\n"
        for match in _END.finditer(text):
            text_ = match[0].strip()
            if text_:
                self.sentences.append(Sentence(text_, self.start + text.index(text_, match.start()), self.turn))
        self.turn += 1

    def _check(self, asked: str, answer: str, thought: str) -> None:
        if answer in _NO_FACT:
            return
        question = self._question(asked, answer)
        begins = self.start + asked.rfind(question)
        self.sentences = [replace(s, asks=True) if s.at >= begins else s for s in self.sentences]
        wrong = None
        if answer == NOT_TOLD:
            self.read["refused"] += 1
            wrong = self._told_after_all(question, thought)
        elif match := _FIRST_STEP.match(answer):
            self.read["two hops"] += 1
            right = match["quote"] in self.heard and english.said(match["value"], match["quote"])
            wrong = None if right else "the first step is not what was said"
        elif match := _COUNTED.match(answer):
            self.read["counted"] += 1
            wrong = self._miscounted(question, int(match["value"]), match["names"])
        elif match := _SAID.match(answer):
            wrong = self._quoted(question, match, thought)
            self.answered.add(_plain(question))
        if wrong:
            self.complaints.append(f"{wrong}: {asked[-160:]!r} -> {answer[:200]!r}")

    def _question(self, asked: str, answer: str) -> str:
        """The end of the message, without the statements that stand before its question."""
        parts = [match[0].strip() for match in _END.finditer(asked) if match[0].strip()] or [asked]
        question = parts[-1]
        quote = found["quote"].partition(" Before: ")[0] if (found := _SAID.match(answer)) else ""
        at = question.find(quote) if quote else -1  # a statement and its question without a full stop between them
        return question[at + len(quote) :].lstrip(" ,.-;") if at >= 0 and len(quote) < len(question) else question

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
            return self._hops(question, thought, quote)
        if match["who"] == "Your text says":
            return self._looked_up(question, match["value"], quote)
        self.read["updated" if before else "stated"] += 1
        return self._about(question, match["value"], quote, at, before, now)

    def _hops(self, question: str, thought: str, quote: str) -> str | None:
        first, _, second = thought.removeprefix("First: ").partition(" Then: ")
        if second != quote or first not in self.heard:
            return "the thought quotes what was never said"
        linked = english.names(first) & english.names(second)
        follows = self.heard.find(second) - self.heard.find(first) - len(first) in range(5)
        if not linked and not (follows and _BACK.match(second)):
            return "the two steps name nothing in common"
        missing = (self._named(question) if not self.exact else set()) - english.roots(first)
        return f"{sorted(missing)} is asked for, of which the first step says nothing" if missing else None

    # What a statement is about

    def _named(self, question: str) -> set[str]:
        """What the question names, after its question word if something is named there."""
        find = english.naming if self.exact else english.owners
        ends = [question[match.start() :] for match in _ASKS.finditer(question)]
        for end in reversed(ends):
            if (named := find(end)) or _BACK.search(end):
                return named
        return find(re.split(r": |, | - ", question)[-1]) if self.exact or not ends else set()

    def _about(self, question: str, value: str, quote: str, at: int, before: str, now: str) -> str | None:
        """Tell what the question names and neither the quote nor what it corrects says; look for a later correction."""
        if (line := re.match(r"(\d+)([.)]) ", quote)) and (asked := _ORDINAL.search(question)):
            return self._numbered(int(line[1]), quote, at, asked[0].lower())
        named = self._named(question)
        if not now and (later := self._later(at, quote, value, named)):
            return f"missed {later!r}"
        missing = named - english.roots(quote)
        if missing and (missing == named or not self.exact):
            self.read["correction"] += 1
            missing -= self._corrected(at, quote.replace(value, ""), before, missing)
        if missing:
            return f"{sorted(missing)} is asked for, of which the quote says nothing"
        return self._another_clause(named, value, quote) if self.in_clauses and not before else None

    def _another_clause(self, named: set[str], value: str, quote: str) -> str | None:
        """Tell whether something else is between the value and what the question names."""
        spelt = re.escape(value).replace("your", "(?:your|my|our)")
        clauses = _CLAUSES.split(re.sub(rf"(?<!\w){spelt}(?!\w)", "§", quote, flags=re.IGNORECASE))
        held = [n for n, clause in enumerate(clauses) if "§" in clause]
        names = [n for n, clause in enumerate(clauses) if named & english.roots(clause)]
        pairs = any(
            clauses[n].rpartition(": ")[2].strip(" .!>*-") == "§" for n in held
        )  # "Ana, the lamp and Bo, the cake"
        if not held or not names or any(n == m or (pairs and n // 2 == m // 2) for n in held for m in names):
            return None
        return f"{sorted(named)} is in another clause of the quote"

    def _corrected(self, at: int, text: str, before: str, wanted: set[str]) -> set[str]:
        """The words of the earlier statements that a correction means: those with the value before, and in turn theirs."""
        earlier = [s for s in self.sentences if s.at < at and not (s.asks and _ASKS.match(s.text))]
        found: set[str] = set()
        links = [s for s in earlier if before and english.said(before.lower(), s.text.lower())]
        links += [s for s in earlier if english.naming(text) & english.roots(s.text)]
        if len(text.split()) < 9:
            links += earlier[-2:]
        for sentence in reversed(links):
            found |= english.roots(sentence.text)
            if not wanted & found and sentence.at < at:
                found |= self._corrected(sentence.at, sentence.text, "", wanted)
            if wanted <= found:
                break
        return found

    def _later(self, at: int, quote: str, value: str, named: set[str]) -> str | None:
        """A statement after the quote that says the same of another value, or corrects it at once."""
        follow = [s for s in self.sentences if s.at >= at + len(quote) and not s.asks]
        if not follow:
            return None
        clause = next((c for c in _CLAUSES.split(quote) if value in c), "")
        before, _, after = clause.partition(value)
        again = re.compile(rf"(?:^|\b){re.escape(before)}(\W*\S+){re.escape(after)}\W*$", re.IGNORECASE)
        words = english.roots(f"{before} {after}")
        for sentence in follow if len(words - named) > 1 and named & words else ():
            new = (found := again.search(sentence.text)) and found[1].strip(" .!?,")
            if new and new.lower() not in value.lower() and english.shape(new) == english.shape(value):
                return sentence.text
        text = follow[0].text
        others = english.naming(text) - english.roots(f"{quote} {text.split()[-1]}")
        same = english.shape(text) == english.shape(value) and value.lower() not in text.lower()
        if _CORRECTS.match(text) and same and not others and follow[0].at - at - len(quote) < 4:
            return text if named & english.naming(text) or len(_CLAUSES.split(quote)) == 1 else None
        return None

    def _numbered(self, number: int, quote: str, at: int, ordinal: str) -> str | None:
        """Tell whether a line of a numbered list is the one that is asked for."""
        following = self.heard[at + len(quote) :].lstrip("\n")
        last = re.match(rf"{number + 1}[.)] ", following) is None
        right = last if ordinal == "last" else _ORDINALS.index(ordinal) + 1 == number
        return None if right else "the quote is another line of the list"

    def _told_after_all(self, question: str, thought: str) -> str | None:
        """Tell whether a statement has every word of the question that was refused, or the same question had an answer."""
        if thought.startswith("First: "):
            return None
        if _plain(question) in self.answered:
            return "refused, but the same question was answered"
        words = english.stems(question)
        if not english.roots(question) & english.PROPERTIES:
            return None
        for sentence in self.sentences:
            if sentence.asks or "?" in sentence.text or _UNKNOWN.search(sentence.text):
                continue
            if not english.could_answer(question, sentence.text):
                continue
            if len(words) > 1 and words <= english.stems(sentence.text) and not self._names_another(question, sentence):
                return f"refused, but {sentence.text!r} was said"
        return None

    def _names_another(self, question: str, sentence: Sentence) -> bool:
        """Tell whether a row of a table is not the one that was asked for, or something is somebody else's."""
        text = sentence.text
        if re.search(r"[|;\t{]|, ?.*,| {2,}|^[•*>-] | [–=] |: .*: ", text) or not english.SMALL & set(
            text.lower().split()
        ):
            cells = [c.strip('" ') for c in re.split(r"[|;,\t{}–=]| {2,}|: ", re.sub(r'"\w+": ', "", text))]
            if sum(tables.has_key(cell, question.lower()) for cell in cells if len(cell) > 1) < 2:
                return True
        owners = {name.lower() for name in re.findall(r"([\w-]+)'s\b", text)}
        mine = re.search(r"\b(my|our)\b", question) is not None
        return mine and bool(owners) and not any(owner in question.lower() for owner in owners)

    # Rows

    def _tables(self) -> Iterable[list[str]]:
        """The lines of each message without its question, the latest first."""
        for turn in range(self.turn - 1, -1, -1):
            told = [s for s in self.sentences if s.turn == turn]
            ends = next((s.at for s in told if s.asks), told[-1].at + len(told[-1].text)) if told else 0
            yield self.heard[told[0].at : ends].split("\n") if told else []

    def _looked_up(self, question: str, value: str, line: str) -> str | None:
        self.read["table"] += 1
        lines = next((found for found in self._tables() if line in map(str.strip, found)), None)
        if lines is None:
            return "no table was pasted"
        table = tables.parse_table(lines)
        if table is None or line not in table[2]:
            return tables.another_line(lines, question, line)
        found, compared = tables.disagrees(table, question, value, line)
        self.read["compared"] += compared
        return found

    def _miscounted(self, question: str, count: int, names: str) -> str | None:
        sizes = set()
        for table in filter(None, map(tables.parse_table, self._tables())):
            if names == ", ".join(f"{row[0]} {row[1]}" for row in table[1]):
                return None if count == len(table[1]) else f"the table has {len(table[1])} rows"
            sizes.add(len(table[1]))
        return f"the tables have {sizes} rows"


def _plain(question: str) -> str:
    return re.sub(r"\W+", " ", question.lower()).strip()
