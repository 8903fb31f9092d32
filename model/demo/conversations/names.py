"""Invented names of people, shops, places and things. Each split has its own, by hash."""

from .splits import draw, pick
from .words import ADJECTIVES, NOUNS

_ONSETS = "b br d dr f fl g gr h k kl l m n p pr r s sh st t tr v w z".split()
_RIMES = "a al an ar ell em en er i il in ir o ol on or u ul um un ay ie ost ash ick".split()
SYLLABLES = [onset + rime for onset in _ONSETS for rime in _RIMES]

# Patterns of names for each kind of entity; {w} is the invented word.
KINDS: dict[str, list[str]] = {
    "person": [
        *["{w} {u}"] * 12,
        "{w}",
        "Doctor {w}",
        "Mr {w}",
        "Mrs {w}",
        "my brother {w}",
        "my sister {w}",
        "my cousin {w}",
        "my friend {w}",
        "our neighbour {w}",
        "my colleague {w}",
        "uncle {w}",
        "aunt {w}",
        "my brother",
        "my sister",
        "my mother",
        "my father",
        "my boss",
        "my landlord",
    ],
    "shop": [
        "{w} " + t
        for t in "Bakery Bookshop Pharmacy Cafe Garage Laundry Grocery Butchery Florist Diner Bistro Barbershop Stationers "
        "Hardware Shoes Optics Market Teahouse Bikes Records Toys".split()
    ],
    "place": [
        "{w} " + t
        for t in "Museum Library Pool Theatre Castle Gardens Gallery Gym Zoo Aquarium Chapel Tower Cinema Clinic School "
        "Archive Observatory Park Stadium Hall".split()
    ],
    "event": [
        "the {w} " + t
        for t in "Concert Festival Workshop Meeting Lecture Wedding Race Auction Exhibition Seminar Parade Reunion Fair "
        "Ceremony Tournament Banquet Conference Premiere Picnic Rehearsal".split()
    ],
    "route": [
        "the {w} " + t for t in "Ferry Express Shuttle Tram Coach Bus Train Flight Cruise Steamer Liner Railway".split()
    ],
    "project": [
        "project {w}",
        "the {w} project",
        "the {w} campaign",
        "the {w} expedition",
        "the {w} study",
        "operation {w}",
    ],
    "company": [
        "{w} " + t
        for t in "Industries Partners Logistics Systems Textiles Motors Foods Paper Energy Labs Brothers Steel".split()
    ],
    "town": ["{w}", "{w}ton", "{w}ville", "{w}burg", "{w}ford", "{w}mouth", "Port {w}", "Lake {w}", "Mount {w}"],
    "hotel": [
        "Hotel {w}",
        "the {w} Inn",
        "{w} Lodge",
        "{w} Hostel",
        "the {w} Palace Hotel",
        "Pension {w}",
        "Villa {w}",
    ],
    "team": [
        "the {w} " + t for t in "Hawks Bears Rovers Wolves Rangers Comets Sharks Owls Giants Pirates Choir Band".split()
    ],
    "pet": ["{w} the " + t for t in "dog cat parrot pony rabbit hamster goat donkey tortoise canary".split()],
    "book": ["{w} and the {N}", "the {A} {N} of {w}", "letters from {w}", "a walk to {w}", "the {N}s of {w}"],
    "thing": [
        "the {a} {n}",
        "my {a} {n}",
        "the {n} from {w}",
        "our {a} {n}",
        "the {w} {n}",
        "my {n} from {w}",
        "my {n}",
        "my {a} {n}",
    ],
}

# How a later clause may take up an entity that has just been named.
PRONOUNS = {"person": ("he", "his", "him"), "woman": ("she", "her", "her"), "team": ("they", "their", "them")}
IT = ("it", "its", "it")
KIND_WORDS = {
    "shop": ["the shop", "this shop", "the place"], "place": ["the place", "this place"], "event": ["the event", "this event"],
    "route": ["this line", "the service"], "project": ["the project", "this project"], "company": ["the company", "this firm"],
    "town": ["the town", "this town"], "hotel": ["the hotel", "this house"], "team": ["the group", "this group"],
    "pet": ["the animal", "this animal"], "book": ["the book", "this book"], "thing": ["this one", "that one"],
    "person": ["this person", "that person"],
}  # fmt: skip


def word(rng, split: str) -> str:
    """A capitalised invented word of two or three syllables."""
    return draw(rng, split, _made_up)


_CONSONANTS, _VOWELS = "bcdfghjklmnpqrstvwxyz", "aeiouy"


def _made_up(rng) -> str:
    """Usually syllables; sometimes random letters or an English word, so that any name is possible."""
    style = rng.random()
    if style < 0.12:
        letters = "".join(
            pick(rng, _CONSONANTS) * (2 if rng.random() < 0.1 else 1) + pick(rng, _VOWELS)
            for _ in range(1 + int(rng.random() * 3))
        )
        start = pick(rng, _VOWELS) if rng.random() < 0.4 else ""
        return (start + letters + (pick(rng, _CONSONANTS) if rng.random() < 0.5 else "")).capitalize()
    if style < 0.2:
        return (
            (pick(rng, ADJECTIVES) + " " + pick(rng, NOUNS)).title()
            if style < 0.15
            else pick(rng, NOUNS).capitalize() + pick(rng, SYLLABLES)
        )
    if style < 0.24:
        return pick(rng, SYLLABLES).capitalize() + "".join(
            pick(rng, _CONSONANTS + _VOWELS) for _ in range(2 + int(rng.random() * 3))
        )
    text = pick(rng, SYLLABLES) + pick(rng, SYLLABLES)
    if rng.random() < 0.35:
        text += pick(rng, SYLLABLES)
    return text.capitalize()


def entity(rng, split: str, kind: str, shared: str | None = None) -> str:
    """A name of the kind. `shared` is another entity's invented word to use again (Tarvin Bakery, Tarvin Museum)."""
    form = pick(rng, KINDS[kind])
    if "{" not in form:  # "my sister": nothing to divide
        return form
    if "{w}" not in form and "{a}" not in form:  # "my kettle"
        return form.format(n=draw(rng, split, lambda r: pick(r, NOUNS)))
    if "{w}" not in form:  # "the green kettle": the pair of words is what is divided over the splits
        pair = draw(rng, split, lambda r: f"{pick(r, ADJECTIVES)} {pick(r, NOUNS)}")
        adjective, noun = pair.split()
        return form.format(a=adjective, n=noun)
    noun = pick(rng, NOUNS)
    return form.format(
        w=shared or word(rng, split), u=word(rng, split) if "{u}" in form else "", n=noun, N=noun, A=pick(rng, ADJECTIVES),
    )  # fmt: skip
