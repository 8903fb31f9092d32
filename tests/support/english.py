"""English as the reader of the demo's conversations understands it: words that ask, words that name things, looks of values."""

import re


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


SMALL = words(
    """a an the of in on at by for to from with and or is was are be been it its you your i we they their them he she him her his
    one who whom what which when where how do does did has have had that this as so up out into can will than all my our me us am
    not no now again tell please could would know remember exactly way just also want need any idea say let give find look show were
    many much long time day"""
)
_SAME = {"bday": "birthday", "profession": "job", "flat": "home", "favorite": "favourite", "color": "colour"}
_NUMBERS = "two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|twenty|thirty|forty|sixty|ninety"
_MONTHS = "jan(uary)?|feb(ruary)?|mar(ch)?|apr(il)?|may|june?|july?|aug(ust)?|sept?(ember)?|oct(ober)?|nov(ember)?|dec(ember)?"
# Words that ask, or name no more than a property: a question may use them for what was told in other words.
ASKING = words(
    """about accent according account activity actually address admin afraid after again against age ahead all along
    already alright also always amount animal another any anyway appointment are around arrive as ask ate away awful
    back badly bake baked be been before began begin beginner beginning belong best better big birth bit blue boil book
    borrow borrowed bought brand breakfast bring brings broad brought build built buy call called came can can't cant
    car card carry carrying change changed charge charged check check-in choose city class close closed cloth clothes
    club cm code collect colour come company contract cook cool cost could count country cream cup curiosity currency
    cut date day debt degree degrees deliver delivered delivery design designed did didn't dinner discovered dish do
    doesn't doing don't done dont dose down dress dressed drink drive drove due earlier early eat email end enough enter
    exactly excuse expect expensive expiry export far fast favourite fee feed feet fetch file film find firm first flag
    flat food for forget forgot found frequency frequently from front fruit full game gate gave gb get give given go
    goes going gone good got group grow had hang happen has have heavy height hello help her hers hey hi high him his
    hmm hold holiday host hot hotel hour how hungry i'd i'll i'm id idea if illness im in instrument internet interval
    into ip isn't its job just keep kept kind know label language large last late later latin learn leave led left
    length lesson let like list listen live location locker log login long look looked lose lot love machine made mail
    make manage many map match material matter may me measured measurement meet meeting melt memory mention menu mine
    model moment money month more much music must name named need nervous network never new next now number numbered off
    office often oh ok old on once one ones oops open opened opponent order organise originally out oven over owe owed
    owes own owner paid painted park password pay people percent percentage person phone photo pick picked place plan
    plane planned plant platform play please population power previously price profession published publisher put
    question quick quickly rack rate reach read really recall recommend remember remind rent repair repairs repeat ride
    room ruler run runs said sale save saved say schedule scheduled school score seat second see sell send sender sent
    serial serve set shape share shelf short should show shut side sign since sing sit sits sitting size sleep slept
    slow so software sold some song sorry sort space speak speed spell spend spoken sport stand stands start starting
    station stay step still stood stop street supposed sure swimming take taken talk tall teach teacher teaches tell
    temperature thank thanks that them then there these they thing think third this ticket tidy time times title to
    today together told took topic town tracking traffic train trained training travel trip true turn type uh uk under
    unfortunately until up use used user username valid value version visit wait walk wall want was wasn't water watered
    watts way we wear wears week weigh weight well were what what's whats when where which while whisper who whom whose
    wide width wifi will win with wonder wondering work would write written wrong wrote year years yes yesterday you
    your"""
)


def root(word: str) -> str:
    """A word without its endings: "mills" and "mill" are one word, "mill" and "milk" are not."""
    word = _SAME.get(word, word)
    for endings in (("ies", "es", "s"), ("ing", "ed", "e", "y")):
        word = next((word[: -len(e)] for e in endings if word.endswith(e) and len(word) - len(e) > 2), word)
    return word


def roots(text: str) -> set[str]:
    return {root(word) for word in re.findall(r"[\w-]+", re.sub(r"['’]s?\b", "", text.lower()))}


_ASKING = {root(word) for word in ASKING | SMALL}
PROPERTIES = {root(word) for word in ASKING - SMALL}


def naming(question: str) -> set[str]:
    """The roots of the words that say what a question is about."""
    return {word for word in roots(question) - _ASKING if len(word) > 1}


def owners(question: str) -> set[str]:
    """The roots of the names in a question: words with a capital, after its first one or before 's."""
    found = re.findall(r" ([A-Z][\w-]+)['’]s\b", question) + re.findall(r"(?<=[a-z,] )[A-Z][\w-]+", question)
    return {root(word.lower()) for word in found if not word.isupper()} - _ASKING - {"secret", "santa", "christma"}


def stems(text: str) -> set[str]:
    """The words that carry a text's meaning, without their endings; a few synonyms are one word."""
    words = [_SAME.get(word, word) for word in re.findall(r"\w+", text.lower().replace("'s", ""))]
    return {word[:5] for word in words if word not in SMALL and (len(word) > 1 or word.isdigit())}


def shape(value: str) -> str:
    """Classify a value by its looks."""
    if re.search(r"\d:\d\d|\b(am|pm|a\.m|p\.m|o'?clock|noon|midnight|half past|quarter)\b|^\d{1,2}(-\d{1,2})?$", value):
        return "number" if re.fullmatch(r"\d+", value) else "time"
    if re.search(rf"day\b|\b({_MONTHS}|tomorrow|week\w*)\b", value.lower()) or re.fullmatch(r"the \d+\w\w", value):
        return "day"
    return "number" if re.search(r"\d", value) else "word"


def said(value: str, quote: str) -> bool:
    """Tell whether a value stands in a quote, as the assistant repeats it: "my" is "your", and a first letter may be small."""
    yours = re.sub(r"\b([Mm]y|[Oo]ur)\b", "your", re.sub(r"\bI\b", "you", quote))
    return (
        any(part in text for text in (quote, yours) for part in (value, value[:1].swapcase() + value[1:]))
        or value == "you"
    )


def could_answer(question: str, sentence: str) -> bool:
    """Tell whether a sentence has a value of the kind that a question wants. Persons and places cannot be told by their looks."""
    asked = question.lower()
    if re.search(r"\b(who|whose|whom|where|wheres)\b|what('s| is) in\b", asked):
        return False
    if "until" in sentence.lower() and re.search(r"\b(open|begin|start)\b", asked) and "until" not in asked:
        return re.search(r"\b(from|opens at|starts? at|begins? at)\b", sentence.lower()) is not None
    for word, kinds in (("time", ["time"]), ("day", ["day"]), ("when", ["time", "day"])):
        if re.search(rf"\b{word}\b", asked):
            return shape(sentence) in kinds
    if re.search(r"\bhow many\b", asked):
        return re.search(rf"\d|\b({_NUMBERS})\b", re.sub(r"[$£€]\d\S*", "", sentence.lower())) is not None
    if re.search(r"\bhow (long|much|expensive)\b", asked):  # neither a time of the day nor a number of people
        rest = re.sub(r"\d+:\d+\S*|\d+ ?[ap]m|\b\S+ (people|guests)\b", "", sentence.lower())
        unit = r"\b(minute|hour|day|week|month|year|night)s?\b|until|since" if "how long" in asked else r"\d|\bk\b"
        return re.search(unit, rest) is not None
    return True


def names(text: str) -> set[str]:
    return {re.sub(r"'s?$", "", word.strip(".,!?:;()")) for word in text.lower().split()} - {
        "the",
        "a",
        "is",
        "of",
        "my",
        "our",
        "at",
        "on",
        "in",
    }
