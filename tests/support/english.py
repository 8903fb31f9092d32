"""English as the reader of the demo's conversations understands it: words that carry meaning, looks of values, genders."""

import difflib
import re


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


SMALL = _words(
    """a an the of in on at by for to from with and or is was are be been it its you your i we they their them he she him her his
    one who whom what which when where how do does did has have had that this as so up out into can will than all my our me us am
    not no now again tell please could would know remember exactly way just also want need any idea say let give find look show were
    many much long time day"""
)
FEMALE = _words(
    """sister mum mother aunt daughter niece grandmother landlady nanny wife mrs ms girlfriend clara lena bella daisy gerda cat dog
    hen chairwoman queen"""
)
MALE = _words(
    """brother dad father uncle son nephew grandfather landlord husband mr boyfriend paul tom rex felix max
    cat dog horse king"""
)


_SAME = {"bday": "birthday", "profession": "job", "flat": "home", "favorite": "favourite", "color": "colour"}
_NUMBERS = "two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|twenty|thirty|forty|sixty|ninety"
_MONTHS = "jan(uary)?|feb(ruary)?|mar(ch)?|apr(il)?|may|june?|july?|aug(ust)?|sept?(ember)?|oct(ober)?|nov(ember)?|dec(ember)?"
# Words for one matter. They tell what a question is about, but not whether a sentence answers it.
_RELATED = (
    "home flat apartment house address live",
    "restaurant table dinner reservation booked eat eating",
    "child children kid kids daughter son",
    "parcel package order",
    "insurance policy insured",
    "bank account",
    "vacation trip holiday destination away leave",
    "phone cell mobile number",
    "username handle nickname user",
    "height tall cm foot",
    "flight flying fly plane",
    "shopping shop buy get pick groceries missing list",
    "subject major majors study studies",
    "company employer work",
    "wifi network wi",
    "cat kitten",
    "lesson lessons class course",
    "wedding marry marrying married engaged fiance",
    "hotel stay staying",
    "boss supervisor manager report",
    "dog puppy",
    "bring care",
    "food dish eat cook favourite",
    "language tongue",
    "fever temperature",
    "pet kitten puppy dog cat rabbit ferret snake goat parrot hamster tortoise horse gecko lizard guinea hedgehog budgie fish",
    "doctor dentist vet surgeon physician",
    "partner wife husband married engaged dating better",
    "sibling sister brother twin",
    "illness hospital sick caught doctor note",
    "medicine pill medication drug",
)


def stems(text: str) -> set[str]:
    """The words that carry a text's meaning, without their endings; a few synonyms are one word."""
    words = [_SAME.get(word, word) for word in re.findall(r"[a-zà-ž]+|\d+", text.lower().replace("'s", ""))]
    return {word[:5] for word in words if word not in SMALL and (len(word) > 1 or word.isdigit())}


def related(text: str) -> set[str]:
    """The stems of a text, and of each one's group of related words the first."""
    words = set(re.findall(r"[a-z]+", text.lower()))
    return stems(text) | {f"({group.split()[0]})" for group in _RELATED if words & set(group.split())}


def shared(one: set[str], other: set[str]) -> set[str]:
    """The stems of one that the other has too, perhaps mistyped."""
    return {
        word for word in one if word in other or (len(word) > 3 and difflib.get_close_matches(word, other, 1, 0.74))
    }


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
    if re.search(r"\b(who|whose|whom|where|wheres)\b", asked):
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
