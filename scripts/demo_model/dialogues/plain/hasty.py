"""Questions as people in a hurry type them: abbreviated, without small words, with slips of the fingers."""

import re
from itertools import pairwise

from ..splits import pick

_WRITTEN = dict(
    number="no/nr/num", password="pw/pwd/pass", appointment="appt/app", address="addr", birthday="bday", tomorrow="tmrw", you="u", are="r", please="pls/plz",
    phone="tel/ph", meeting="mtg", people="ppl", temperature="temp", and_="&/n", apartment="apt", doctor="doc/dr", minutes="min", information="info",
    what="wat/wht", where="wher/whr", thanks="thx", tonight="2nite", for_="4/fr", favourite="fav/favorite", department="dept", reservation="resv",
    monday="mon", tuesday="tue/tues", wednesday="wed", thursday="thu/thurs", friday="fri", saturday="sat", sunday="sun", the="teh", about="abt", because="bc",
    when="wen/whn", which="wich", your="ur", street="st", room="rm", with_="w/", without="w/o", question="q",
)  # fmt: skip
_SHORT = {word.rstrip("_"): tuple(forms.split("/")) for word, forms in _WRITTEN.items()}
_SMALL = re.compile(r"\b(is|are|the|does|do|did|my|a)\b ", re.IGNORECASE)
_KEYS = {a: b for row in ("qwertyuiop", "asdfghjkl", "zxcvbnm") for a, b in pairwise(row)}


def hurried(rng, text: str) -> str:
    """The question with one or two marks of haste. Words with a capital inside the text, digits and invented names stay."""
    words = text.split(" ")
    style = rng.random()
    if style < 0.45:
        able = [n for n, word in enumerate(words) if word.lower().rstrip("?.,") in _SHORT]
        for n in able[: 1 + int(rng.random() * 2)]:
            bare = words[n].rstrip("?.,")
            words[n] = pick(rng, _SHORT[bare.lower()]) + words[n][len(bare) :]
        text = " ".join(words)
    elif style < 0.65:
        text = _SMALL.sub("", text, count=1 + int(rng.random() * 2)) or text
    elif style < 0.9:
        able = [n for n, word in enumerate(words) if len(word) > 3 and word.islower() and word.isalpha()]
        if able:
            n = pick(rng, able)
            words[n] = _slip(rng, words[n])
            text = " ".join(words)
    else:
        text = text.lower() if rng.random() < 0.7 else text.upper()
    return re.sub(r"[?.,]", "", text) if rng.random() < 0.4 else text


def _slip(rng, word: str) -> str:
    """One letter left out, doubled, exchanged with its neighbour, or with the key beside it; the first one stays."""
    at = 1 + int(rng.random() * (len(word) - 1))
    style = rng.random()
    if style < 0.3:
        return word[:at] + word[at + 1 :]
    if style < 0.5:
        return word[:at] + word[at] + word[at:]
    if style < 0.8:
        return word[: at - 1] + word[at] + word[at - 1] + word[at + 1 :] if at > 1 else word + word[-1]
    return word[:at] + _KEYS.get(word[at], word[at]) + word[at + 1 :]
