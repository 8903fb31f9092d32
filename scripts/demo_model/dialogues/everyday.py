"""Values of everyday scenes: days, schedules, errands, presents, reasons."""

from . import names
from .everyday_errands import fill, verb_phrase
from .everyday_things import (
    any_noun,
    below,
    dose,
    gift,
    line,
    parking,
    placename,
    plain_noun,
    server,
    several_names,
    shopping,
    spoken,
    title,
    with_article,
)
from .everyday_words import (
    ACTIVITIES,
    BINS,
    BRANDS,
    CARS,
    COMPARATIVES,
    CONTACTS,
    DIRECTIONS,
    DISHES,
    DOCUMENTS,
    ERRANDS,
    GAMES,
    GROUPS,
    HOUSEHOLD,
    ILLNESSES,
    KIDS,
    LOCKED,
    MEALS,
    MEDICINES,
    METRICS,
    NETWORKS,
    NUMBERS,
    OCCASIONS,
    OCCUPIED,
    ORDERS,
    ORDINAL_WORDS,
    ORDINALS,
    PARTICIPLES,
    PERSONAL,
    PETS,
    PROFESSIONS,
    REASONS,
    ROLES,
    ROOMS,
    SCHOOL,
    STATES,
    SUBSCRIPTIONS,
    TASKS,
    TOGETHER,
    TOOLS,
    VEHICLES,
)
from .lexicon import (
    ADJECTIVES,
    COLOURS,
    DAYS,
    JOBS,
    MONTHS,
    OBJECTS,
    ORGS,
    RELATIONS,
    TRANSITIVES,
)
from .splits import pick


def dayish(rng, split) -> str:
    """A day that follows "on"."""
    draw, day, ordinal, month = rng.random(), pick(rng, DAYS), pick(rng, ORDINALS), pick(rng, MONTHS)
    if draw < 0.4:
        return day
    if draw < 0.55:
        return f"the {ordinal}"
    if draw < 0.65:
        return f"{pick(rng, [month, month[:3]])} {ordinal}"
    if draw < 0.75:
        return f"{1 + below(rng, 30)} {pick(rng, [month, month[:3]])}"
    if draw < 0.85:
        return f"{day} {pick(rng, ['morning', 'afternoon', 'evening', 'night', 'next week', 'at noon'])}"
    return f"{day} the {ordinal}" if draw < 0.93 else f"the {ordinal} of {month}"


def schedule(rng, split) -> str:
    """How often something happens, as an adverbial."""
    draw, day, other, count = rng.random(), pick(rng, DAYS), pick(rng, DAYS), pick(rng, NUMBERS)
    if draw < 0.18:
        return f"on {day}s"
    if draw < 0.34:
        return f"every {pick(rng, ['', 'other ', 'second ', 'third ', 'single '])}{day}"
    if draw < 0.46 and day != other:
        return f"{pick(rng, ['on ', 'every ', ''])}{day}{pick(rng, ['s', ''])} and {other}s".replace("every ", "on ")
    if draw < 0.6:
        return f"{pick(rng, ['once', 'twice', 'three times', 'four times', f'{count} times'])} {pick(rng, ['a day', 'a week', 'a month', 'a year', 'an hour', 'per week', 'daily'])}".replace(
            "daily", "a day"
        )
    if draw < 0.75:
        return f"every {count} {pick(rng, ['hours', 'days', 'weeks', 'months', 'minutes', 'years'])}"
    if draw < 0.87:
        return f"{pick(rng, ['every', 'every other', 'each'])} {pick(rng, ['morning', 'evening', 'night', 'weekend', 'day', 'week', 'month', 'summer', 'winter', 'year'])}"
    return f"on the {pick(rng, ['first', 'second', 'third', 'last'])} {day} of {pick(rng, ['the month', 'every month', 'each month'])}"


def _combo(rng, split) -> str:
    return pick(rng, "-- /").join(str(below(rng, 60)) for _ in range(3 + below(rng, 2)))


def _port(rng, split) -> str:
    return str(below(rng, 60000) + 20)


def _score(rng, split) -> str:
    a, b = below(rng, 12), below(rng, 12)
    return pick(
        rng, [f"{a}-{b}", f"{a}:{b}", f"{a} to {b}", f"{a}–{b}", f"{below(rng, 90) + 20}-{below(rng, 90) + 20}"]
    )


def _seat(rng, split) -> str:
    return f"{pick(rng, ['seat ', 'seat ', '', 'row '])}{below(rng, 60) + 1}{pick(rng, 'ABCDEFHK')}"


def _coordinates(rng, split) -> str:
    north, east, fine = below(rng, 90), below(rng, 180), below(rng, 10000)
    return pick(
        rng,
        [
            f"{north}.{fine:04d}, {east}.{below(rng, 10000):04d}",
            f"{north}.{fine % 100:02d} N, {east}.{below(rng, 100):02d} E",
            f"{north}° {below(rng, 60)}' N",
            f"{pick(rng, 'ABCDEFGH')}{below(rng, 9) + 1}",
            f"{north}.{fine % 1000:03d} / {east}.{below(rng, 1000):03d}",
            f"{north}N {east}W",
        ],
    )


def _metric_value(rng, split) -> str:
    return pick(
        rng,
        [
            f"{below(rng, 100)}.{below(rng, 10)}%",
            f"{below(rng, 100)}%",
            f"${below(rng, 900) + 1}k",
            f"{below(rng, 900) + 1} million",
            f"{below(rng, 90) + 1}.{below(rng, 10)} million euros",
            f"{below(rng, 900) + 1},{below(rng, 1000):03d}",
            f"{below(rng, 9000) + 10}",
            f"{below(rng, 900) + 1} {below(rng, 1000):03d}",
            f"€{below(rng, 900) + 1},{below(rng, 1000):03d}",
            f"{below(rng, 900) + 2} tons",
        ],
    )


def _period(rng, split) -> str:
    year = 1990 + below(rng, 50)
    return pick(
        rng,
        [
            str(year),
            f"Q{below(rng, 4) + 1}",
            f"Q{below(rng, 4) + 1} {year}",
            pick(rng, MONTHS),
            f"{pick(rng, MONTHS)} {year}",
            f"week {below(rng, 52) + 1}",
            f"the {pick(rng, ['first', 'second', 'third', 'fourth'])} quarter",
            f"the {pick(rng, ['summer', 'winter', 'spring', 'autumn'])} of {year}",
        ],
    )


MAKERS = {
    "dayish": dayish, "schedule": schedule, "gift": gift, "children": several_names, "shopping": shopping, "line": line, "combo": _combo, "dose": dose,
    "ordinalday": lambda rng, split: f"the {pick(rng, ORDINALS)}", "landlord": title, "firstname": names.given, "name": names.given,
    "relday": lambda rng, split: pick(rng, ["tomorrow", "next week", "this weekend", "tonight", "next month", "in two weeks", "today", "tomorrow morning", f"next {pick(rng, DAYS)}", f"this {pick(rng, DAYS)}", f"in {pick(rng, NUMBERS)} days", f"in {pick(rng, MONTHS)}", f"in {pick(rng, NUMBERS)} weeks"]),
    "profession": lambda rng, split: pick(rng, PROFESSIONS), "document": lambda rng, split: pick(rng, DOCUMENTS),
    "medicine": lambda rng, split: pick(rng, MEDICINES) if rng.random() < 0.8 else names.word(rng, split), "collected": lambda rng, split: pick(rng, BINS),
    "dish": lambda rng, split: pick(rng, DISHES), "occasion": lambda rng, split: pick(rng, OCCASIONS), "activity": lambda rng, split: pick(rng, ACTIVITIES),
    "orgkind": lambda rng, split: pick(rng, OCCUPIED), "kid": lambda rng, split: pick(rng, KIDS) if rng.random() < 0.6 else names.given(rng, split),
    "contact": lambda rng, split: pick(rng, CONTACTS) if rng.random() < 0.45 else names.given(rng, split) if rng.random() < 0.6 else f"my {pick(rng, RELATIONS)}",
    "vehiclething": lambda rng, split: pick(rng, VEHICLES), "mything": lambda rng, split: f"my {pick(rng, [pick(rng, ADJECTIVES) + ' ', '', ''])}{any_noun(rng, split)}",
    "object": any_noun, "reason": lambda rng, split: fill(pick(rng, REASONS), rng, split), "errand": lambda rng, split: fill(pick(rng, ERRANDS), rng, split),
    "orgname": lambda rng, split: f"{pick(rng, ['Dr. ', 'Dr ', ''])}{names.surname(rng, split)}" if rng.random() < 0.4 else f"the {names.word(rng, split)} {pick(rng, ORGS)}",
    "contrast": lambda rng, split: pick(rng, COLOURS if rng.random() < 0.6 else ADJECTIVES), "comparative": lambda rng, split: pick(rng, COMPARATIVES),
    "personal": lambda rng, split: pick(rng, PERSONAL), "age": lambda rng, split: str(below(rng, 95) + 3), "temp": lambda rng, split: f"{below(rng, 25) * 10 + 40}{pick(rng, ['', '', ' degrees', '°C', ' C', '°'])}",
    "weekdays": lambda rng, split: f"{pick(rng, DAYS)}s" if rng.random() < 0.75 else f"{pick(rng, DAYS)}s and {pick(rng, DAYS)}s", "monthyear": lambda rng, split: f"{pick(rng, MONTHS)} {2024 + below(rng, 40)}" if rng.random() < 0.6 else pick(rng, MONTHS) if rng.random() < 0.3 else str(2024 + below(rng, 60)),
    "relation": lambda rng, split: pick(rng, RELATIONS), "errandthing": lambda rng, split: f"{pick(rng, TRANSITIVES)[0]} the {any_noun(rng, split)}", "job_": lambda rng, split: pick(rng, JOBS),
    "year": lambda rng, split: str(1930 + below(rng, 110)),
    "petkind": lambda rng, split: pick(rng, PETS), "animalname": names.given, "network": lambda rng, split: pick(rng, NETWORKS) if rng.random() < 0.85 else names.word(rng, split),
    "lockthing": lambda rng, split: pick(rng, LOCKED) if rng.random() < 0.85 else any_noun(rng, split), "ordernoun": lambda rng, split: pick(rng, ORDERS), "group": lambda rng, split: pick(rng, GROUPS),
    "taskthing": lambda rng, split: pick(rng, TASKS) if rng.random() < 0.8 else f"{names.word(rng, split)} {pick(rng, TASKS)}", "householdthing": lambda rng, split: pick(rng, HOUSEHOLD) if rng.random() < 0.7 else any_noun(rng, split),
    "vehicle2": lambda rng, split: pick(rng, CARS), "subjectschool": lambda rng, split: pick(rng, SCHOOL), "subscription": lambda rng, split: pick(rng, SUBSCRIPTIONS), "game": lambda rng, split: pick(rng, GAMES),
    "server": server, "port": _port, "parking": parking, "score2": _score, "seatnumber": _seat, "placename": placename, "weatherplace": names.town, "flight": lambda rng, split: f"{pick(rng, 'ABDEFKLQSTUVX')}{pick(rng, 'ABCFHKLNRWXY')}{pick(rng, ['', ' '])}{below(rng, 9000) + 100}",
    "shopsize": lambda rng, split: pick(rng, ["S", "M", "L", "XL", "XS", "XXL", "medium", "large", "small", f"{below(rng, 30) + 32}", f"{below(rng, 14) + 1}", f"{below(rng, 14) + 3}.5"]),
    "plural": lambda rng, split: (lambda noun: noun if noun.endswith("s") else f"{noun}es" if noun.endswith(("ch", "sh", "x")) else f"{noun}s")(any_noun(rng, split) if rng.random() < 0.7 else f"{pick(rng, ADJECTIVES)} {any_noun(rng, split)}"),
    "title2": lambda rng, split: pick(rng, [f"{pick(rng, ADJECTIVES).title()} {pick(rng, OBJECTS).title()}", f"The {pick(rng, OBJECTS).title()} of {names.town(rng, split)}", f"The {pick(rng, ADJECTIVES).title()} {pick(rng, JOBS).title()}", names.word(rng, split), f"Letters to {names.given(rng, split)}"]),
    "plainnoun": plain_noun, "coords": _coordinates, "metricvalue": _metric_value, "period": _period, "textvalue": spoken, "vp": verb_phrase,
    "illness": lambda rng, split: pick(rng, ILLNESSES), "role2": lambda rng, split: pick(rng, ROLES), "metric": lambda rng, split: pick(rng, METRICS), "thingtheydo": lambda rng, split: pick(rng, TOGETHER),
    "brand": lambda rng, split: pick(rng, BRANDS) if rng.random() < 0.4 else names.word(rng, split), "quantity2": lambda rng, split: pick(rng, [f"{below(rng, 90) * 10 + 20} g", f"{below(rng, 900) + 10} grams", f"{pick(rng, NUMBERS)} cups", f"{below(rng, 12) + 2} spoons", "half a litre", f"{below(rng, 900) + 10} ml", "a pinch", f"{below(rng, 9) + 1}.5 kilos", f"{pick(rng, NUMBERS)} handfuls", f"{below(rng, 20) + 2} slices"]),
    "reltime": lambda rng, split: pick(rng, [f"on {dayish(rng, split)}", f"at {below(rng, 12) + 1}{pick(rng, [' pm', 'am', 'pm', ':30', ':15', ':45 pm'])}", f"by {dayish(rng, split)}", "tomorrow", "tonight", "next week", f"before {pick(rng, DAYS)}", f"at {below(rng, 24)}:{below(rng, 60):02d}", f"in {pick(rng, NUMBERS)} days", f"at {below(rng, 12) + 1} on {pick(rng, DAYS)}", f"this {pick(rng, DAYS)}", f"in {pick(rng, MONTHS)}", "after work", "before lunch", "during the break"]),
    "adjnoun": lambda rng, split: pick(rng, [f"in {names.town(rng, split)}", f"at the {pick(rng, OCCUPIED)}", f"near the {pick(rng, OCCUPIED)}", f"behind the {any_noun(rng, split)}", f"under the {pick(rng, ADJECTIVES)} {any_noun(rng, split)}", f"on the {pick(rng, ['bus', 'train', 'roof', 'stairs', 'beach', 'balcony', 'bench', 'plane'])}", f"next to the {any_noun(rng, split)}", f"in the {pick(rng, ['garden', 'cellar', 'kitchen', 'attic', 'hallway', 'office', 'park', 'library'])}", f"at {names.given(rng, split)}'s place"]),
    "teamorg": lambda rng, split: pick(rng, [f"the {names.word(rng, split)} {pick(rng, ORGS)}", names.word(rng, split), f"the {pick(rng, GROUPS)}", f"{names.word(rng, split)} {pick(rng, ['Ltd', 'Inc', 'Labs', 'Group', 'Media'])}", f"the {names.word(rng, split)} {pick(rng, ['club', 'team', 'society', 'foundation', 'project', 'union'])}"]),
    "languagefact": lambda rng, split: pick(rng, ["Welsh", "Latin", "Finnish", "Basque", "Maori", "Swahili", "Icelandic", names.word(rng, split), f"{names.word(rng, split)}ish"]), "textplace": lambda rng, split: f"the {pick(rng, ['cabin', 'camp', 'treasure', 'well', 'hut', 'tower', 'harbour', 'lighthouse', 'cave', 'spring', 'landing site', 'boat', 'base', 'cache'])}",
    "relday2": lambda rng, split: pick(rng, DAYS), "vehicle3": lambda rng, split: with_article(f"{pick(rng, ADJECTIVES)} {pick(rng, ['van', 'truck', 'bike', 'scooter', 'car', 'bus', 'jeep'])}"),
    "vp2": lambda rng, split: pick(rng, PARTICIPLES), "meal": lambda rng, split: pick(rng, MEALS), "room2": lambda rng, split: pick(rng, ROOMS), "langtool": lambda rng, split: pick(rng, TOOLS) if rng.random() < 0.7 else names.word(rng, split),
    "state": lambda rng, split: pick(rng, STATES), "direction": lambda rng, split: pick(rng, DIRECTIONS), "ordinalword": lambda rng, split: pick(rng, ORDINAL_WORDS), "animal2": lambda rng, split: pick(rng, PETS),
    "number2": lambda rng, split: pick(rng, [str(below(rng, 400) + 1), f"{below(rng, 100)}%", f"{below(rng, 40)}.{below(rng, 10)}", f"{below(rng, 90) + 5} degrees", f"level {below(rng, 12) + 1}", "low", "high", "medium", f"{below(rng, 12) + 1} bar", f"{below(rng, 900) + 100} watts", f"stage {below(rng, 9) + 1}", f"mode {pick(rng, 'ABCDE')}"]),
    "command": lambda rng, split: pick(rng, [f"make {names.word(rng, split).lower()}", f"./{names.word(rng, split).lower()}.sh", f"npm run {names.word(rng, split).lower()}", f"{names.word(rng, split).lower()} --{pick(rng, ADJECTIVES).replace(' ', '-')}", f"systemctl restart {names.word(rng, split).lower()}", f"python {names.word(rng, split).lower()}.py", f"pip install {names.word(rng, split).lower()}", f"docker start {names.word(rng, split).lower()}", f"sudo {names.word(rng, split).lower()} -{pick(rng, 'abcdfgr')}"]),
}  # fmt: skip
