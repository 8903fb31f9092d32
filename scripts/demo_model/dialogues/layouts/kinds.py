"""Cells of tables: kinds of values that only tables have, beside those of `values`."""

from .. import names, values
from ..lexicon import CONTAINERS, DAYS, EVENTS, FOODS, JOBS, MONTHS, OBJECTS, PLACES, SUBJECTS
from ..splits import pick

_DISHES = tuple("""soup|tomato soup|pumpkin soup|onion soup|lentil soup|pasta|lasagne|risotto|curry|green curry|fish and chips|fried rice|chili|goulash|stew|beef stew|pancakes|waffles|omelette|burger|veggie burger
pizza|pizza margherita|noodles|ramen|sushi|tacos|burritos|falafel|hummus|salad|Greek salad|Caesar salad|potato salad|dumplings|roast chicken|grilled salmon|baked potatoes|meatballs|schnitzel|quiche|ratatouille
paella|moussaka|gnocchi|ravioli|spaghetti|cheesecake|apple pie|fruit salad|ice cream|chocolate cake|tiramisu|rice pudding|porridge|muesli|croissant|bagel|sandwich|club sandwich|cheese toast|club mate|iced tea
flat white|latte|espresso|cappuccino|hot chocolate|lemonade|green tea|orange juice|brownie|muffin|carrot cake|leftovers|barbecue|fondue|tofu stir-fry|baked beans|mushroom pie|kebab|pad thai|couscous""".replace("\n", "|").split("|"))  # fmt: skip
_SERVICES = tuple("""redis postgres mysql nginx api web frontend backend gateway auth auth-service billing payments payment-service mailer mail search
worker scheduler queue rabbitmq kafka grafana prometheus loki vault consul registry proxy cache session-store orders inventory users notifications
reports exporter importer indexer elastic mongo minio jenkins gitea wiki chat dns vpn backup cron thumbnailer transcoder uploads downloads admin
dashboard analytics tracker recommender ranker crawler parser login checkout shipping webhook sync monitor alertmanager etcd haproxy traefik""".split())  # fmt: skip
_PLANTS = tuple("""rose|basil|tomatoes|cactus|orchid|fern|ivy|lavender|mint|rosemary|thyme|tulips|sunflower|cucumbers|lettuce|peppers|strawberries|palm|ficus|aloe|bamboo|lilies|parsley|chives|spinach|carrots|beans
pumpkin|apple tree|cherry tree|lemon tree|hydrangea|geraniums|rhubarb|sage|oregano|radishes|onions|garlic|raspberries|blueberries|fig tree|olive tree|monstera|peace lily|snake plant|jasmine|clematis|dahlias""".replace("\n", "|").split("|"))  # fmt: skip
_MEDICINES = tuple(
    word.replace("~", " ")
    for word in """aspirin ibuprofen paracetamol insulin penicillin metformin vitamin~D vitamin~C zinc iron~tablets magnesium cough~syrup
eye~drops nose~spray antibiotics melatonin omeprazole lisinopril cetirizine loratadine heparin ramipril warfarin cortisone folic~acid
calcium~tablets sleeping~pills""".split()
)
_EXPENSES = tuple("""rent|electricity|water|gas|internet|phone|groceries|insurance|car|petrol|train tickets|hotel|flights|food|clothes|gifts|cinema|gym|school|books|heating|repairs|furniture|taxes|parking|taxi
restaurant|coffee|streaming|dentist|haircut|cleaning|garden|pets|vet|music lessons|paint|tools|donations|childcare|postage|software|hosting|printing|catering|decoration|the band|drinks|venue|travel|laundry""".replace("\n", "|").split("|"))  # fmt: skip
_SHOPS = tuple("""bakery|pharmacy|library|post office|bank|gym|pool|supermarket|museum|cinema|cafe|bookshop|hairdresser|florist|butcher|town hall|zoo|school|kindergarten|vet|garage|petrol station|market|laundry
ice rink|theatre|pub|pizzeria|bike shop|shoe shop|hardware store|tailor|clinic|hospital|police station|sauna|climbing hall|tourist office|station|gallery|toy shop|dentist|copy shop|fish shop|greengrocer""".replace("\n", "|").split("|"))  # fmt: skip
_ACCOUNTS = tuple("""savings account|checking account|joint account|holiday fund|business account|email account|router|bank account|wifi|admin account|test account|company card|credit card|Netflix account
shop account|library account|laptop|server|forum|blog|calendar|gift card|bus pass|canteen card|emergency fund|printer|alarm|photo cloud|tax portal|insurance portal""".replace("\n", "|").split("|"))  # fmt: skip
_KEYS = tuple("""car key|front door key|garage key|cellar key|office key|shed key|mailbox key|bike key|safe key|attic key|spare key|gate key|boat key|locker key|church key|workshop key|van key|storage key|lab key
master key|gym key|kitchen key|roof key|archive key|clubhouse key|trailer key|barn key|piano key|meter key|cabinet key""".replace("\n", "|").split("|"))  # fmt: skip
_ROLES = tuple("""treasurer secretary chair president goalkeeper captain caretaker director producer cashier speaker vice~president webmaster driver host coach referee editor cook conductor king queen
narrator first~officer pilot medic librarian photographer best~man witness scorekeeper moderator bassist drummer singer guitarist producer lighting~technician stage~manager head~chef
head~of~sales head~of~IT project~manager team~lead fire~warden first~aider data~protection~officer press~officer""".split())  # fmt: skip
_ROLES = tuple(dict.fromkeys(role.replace("~", " ") for role in _ROLES))
_EXERCISES = tuple("""squats|push-ups|pull-ups|sit-ups|lunges|planks|burpees|deadlifts|bench press|rows|crunches|dips|leg press|curls|shoulder press|jumping jacks|step-ups|calf raises|kettlebell swings|rowing""".split("|"))  # fmt: skip
_PACKAGES = tuple("""numpy pandas torch flask django requests pytest react vue lodash express jquery openssl zlib curl sqlite ffmpeg boost spring guava jackson serde tokio rayon clap pydantic fastapi scipy
pillow matplotlib click jinja2 webpack babel eslint typescript axios redux bootstrap tailwind python node go rust gcc cmake git bash vim linux php ruby rails""".split())  # fmt: skip
_COMMITS = tuple("""fix login|fix typo|add dark mode|update readme|remove old tests|bump version|refactor parser|speed up search|add cache|fix memory leak|rename module|revert logo change|add retry|support IPv6|fix crash on start
clean up imports|new icons|drop Python 2|add French translation|fix time zone bug|merge branch dev|add health check|tune timeouts|fix broken link|log slow queries|hide password|add unit tests|fix race condition""".replace("\n", "|").split("|"))  # fmt: skip
_RECIPES = ("{n} g", "{n}0 g", "{n} ml", "{s}", "{s} tbsp", "{s} tsp", "{s} cups", "{n}0 ml", "{s} kg", "{s} l", "half a cup", "a pinch", "{s} pieces", "{s} slices", "a handful", "{n} grams", "{s} spoons", "{s} packs")  # fmt: skip
_TASKS = tuple(
    f"{verb} the {noun}" if noun not in ("groceries",) else f"{verb} {noun}"
    for verb, noun in (
        item.split("/")
        for item in """book/hall book/hotel book/flights order/chairs order/cake order/flowers call/bank call/landlord call/plumber send/invoice send/invitations send/offer write/report write/minutes
write/speech check/contract check/numbers check/brakes fix/printer fix/roof fix/login fix/tap buy/gift buy/groceries buy/paint buy/tickets clean/kitchen clean/garage clean/windows update/website update/price~list
update/slides water/plants feed/cat pick~up/kids pick~up/parcel pick~up/keys renew/passport renew/insurance pay/rent pay/fine pay/caterer print/posters print/badges test/backup test/alarm prepare/slides prepare/lunch
prepare/demo move/piano sell/bike sell/sofa repair/fence repair/heating paint/door paint/wall translate/manual review/budget review/draft sign/lease cancel/subscription invite/speakers invite/neighbours hire/band
return/books return/ladder measure/windows install/update install/lamp reset/router archive/files wash/car wash/curtains cut/hedge take~out/rubbish mow/lawn rehearse/play collect/money count/votes reserve/table""".replace(
            "\n", " "
        ).split()
    )
)
_TASKS = tuple(task.replace("~", " ") for task in _TASKS)
_HOSTS = (
    "web",
    "db",
    "app",
    "node",
    "srv",
    "vm",
    "cache",
    "build",
    "gpu",
    "mail",
    "prod-web",
    "prod-db",
    "stage",
    "edge",
    "nas",
    "pi",
    "lab",
    "proxy",
    "worker",
    "box",
)
_MONEY = ("{}", "{}", "{}", "{}", "${}", "€{}", "£{}", "{} €", "{} EUR", "{} euros", "{} dollars", "{}$")
_BINS = ("paper bin", "green bin", "blue bin", "yellow bin", "black bin", "brown bin", "glass bin", "red bin", "grey bin", "organic waste", "paper", "glass", "recycling", "garden waste", "bulky waste", "plastic", "general waste", "scrap metal")  # fmt: skip
_LINES = (
    "IC",
    "ICE",
    "RE",
    "RB",
    "S",
    "U",
    "EC",
    "TGV",
    "bus",
    "tram",
    "train",
    "ferry",
    "line",
    "Bus",
    "Tram",
    "Train",
    "N",
    "X",
)
_SUFFIXES = "py txt md csv pdf png jpg json log xlsx docx html yaml zip mp3 c rs go sh sql cfg".split()


def _below(rng, n: int) -> int:
    return int(rng.random() * n)


def _singulars(items) -> tuple[str, ...]:
    return tuple(item for item in items if not item.endswith("s"))


def plural(noun: str) -> str:
    if noun.endswith(("s", "sh", "ch", "x")):
        return noun + "es" if not noun.endswith("s") else noun
    return noun[:-1] + "ies" if noun.endswith("y") and noun[-2] not in "aeiou" else noun + "s"


_THINGS = _singulars(OBJECTS)
_PLURALS = tuple(plural(noun) for noun in OBJECTS)
_CHOICES = {
    "dish": _DISHES, "service": _SERVICES, "plant": _PLANTS, "medicine": _MEDICINES, "expense": _EXPENSES, "shop": _SHOPS, "account": _ACCOUNTS,
    "keyname": _KEYS, "role": (*_ROLES, *JOBS), "exercise": _EXERCISES, "package": _PACKAGES, "commit": _COMMITS, "task": _TASKS, "bin": _BINS,
    "thing": _THINGS, "things": _PLURALS, "event": EVENTS, "subject": SUBJECTS, "day": DAYS, "food": FOODS,
    "storage": (*(f"the {c}" for c in CONTAINERS), *CONTAINERS, *PLACES), "venue": (*PLACES, *(f"room {n}" for n in range(1, 99))),
}  # fmt: skip
_INVENTED = frozenset(
    "dish service plant medicine shop thing package food subject exercise".split()
)  # may have made-up names


def cell(rng, split: str, kind: str, style: float = 0.0) -> str:
    """A value of a column, or a row's name. style, from 0 to 1, is that of the column's times and amounts."""
    first = kind[0]
    if first == "#":
        low, high = kind[1:].rstrip("%").split("-")
        return f"{int(low) + _below(rng, int(high) - int(low) + 1)}{'%' if kind.endswith('%') else ''}"
    if first == "=":
        return pick(rng, kind[1:].split("/"))
    if first == "@":
        hour = _below(rng, 24)
        minute = 5 * _below(rng, 12) if rng.random() < 0.6 else _below(rng, 60)
        return (
            f"{hour}:{minute:02d}"
            if style < 0.6
            else f"{hour:02d}:{minute:02d}"
            if style < 0.9
            else f"{hour % 12 + 1}{pick(rng, [' am', ' pm', 'am', 'pm'])}"
        )
    if first == "$":
        amount = f"{_below(rng, 60) + 1}.{_below(rng, 100):02d}" if style * 7 % 1 < 0.6 else str(_below(rng, 990) + 2)
        return _MONEY[int(style * len(_MONEY))].format(amount)
    if kind in _CHOICES:
        if kind in _INVENTED and rng.random() < 0.12:
            return names.word(rng, split).lower()
        return pick(rng, _CHOICES[kind])
    special = _SPECIAL.get(kind)
    return special(rng, split) if special else values.value(rng, split, kind)


def _flight(rng, split) -> str:
    return f"{''.join(pick(rng, 'ABDEFKLNQRSTUX') for _ in range(2))}{pick(rng, ['', ' '])}{_below(rng, 9000) + 100}"


def _file(rng, split) -> str:
    stem = pick(rng, OBJECTS).replace(" ", "_") if rng.random() < 0.6 else names.word(rng, split).lower()
    return f"{stem}{pick(rng, ['', '', f'_{_below(rng, 99)}', '_final', '-v2', '_old'])}.{pick(rng, _SUFFIXES)}"


def _sample(rng, split) -> str:
    return f"{pick(rng, ['sample ', 'S', 'run ', 'exp-', 'T', 'probe ', 'batch ', 'trial ', '#'])}{_below(rng, 99) + 1}"


def _sensor(rng, split) -> str:
    if rng.random() < 0.5:
        return f"{pick(rng, ['temp', 'hum', 'door', 'co2', 'smoke', 'light', 'flow', 'motion'])}{pick(rng, ['-', '_', ''])}{_below(rng, 40) + 1}"
    return f"{pick(rng, ['kitchen', 'cellar', 'attic', 'garden', 'hall', 'boiler', 'roof', 'garage', 'pool', 'freezer'])} {pick(rng, ['sensor', 'thermometer', 'meter', 'probe'])}"


def _ticket(rng, split) -> str:
    prefix = pick(rng, ["#", "BUG-", "T-", "PROJ-", "OPS-", "#", names.word(rng, split)[:3].upper() + "-"])
    return f"{prefix}{_below(rng, 2000) + 1}"


def _daydate(rng, split) -> str:
    style = rng.random()
    if style < 0.5:
        return pick(rng, DAYS)
    if style < 0.8:
        return f"{_below(rng, 28) + 1} {pick(rng, MONTHS)}"
    return (
        f"{pick(rng, DAYS)[:3]} {_below(rng, 28) + 1}.{_below(rng, 12) + 1}."
        if style < 0.9
        else pick(rng, ["tomorrow", "next week", "today", "end of May", "mid-June", "Monday morning", "tonight"])
    )


_SPECIAL = {
    "given": names.given, "surname": lambda rng, split: f"{pick(rng, ['', '', 'Mr ', 'Ms ', 'Dr '])}{names.surname(rng, split)}",
    "hostname": lambda rng, split: f"{pick(rng, _HOSTS)}{pick(rng, ['-', '', '0'])}{_below(rng, 40) + 1}" if rng.random() < 0.8 else names.word(rng, split).lower(),
    "gatecode": lambda rng, split: f"{pick(rng, 'ABCDEFG')}{_below(rng, 60) + 1}", "seatcode": lambda rng, split: f"{_below(rng, 60) + 1}{pick(rng, 'ABCDEF')}",
    "degrees": lambda rng, split: f"{_below(rng, 48) - 12}{pick(rng, ['', '°', '°C', ' °C', ' degrees'])}",
    "rack": lambda rng, split: f"{pick(rng, ['rack ', 'R', 'row ', 'cage '])}{_below(rng, 40) + 1}", "flight": _flight, "file": _file, "sample": _sample, "sensor": _sensor,
    "stadium": lambda rng, split: f"{pick(rng, ['the ', ''])}{names.word(rng, split)} {pick(rng, ['Arena', 'Park', 'Stadium', 'Hall', 'Ground', 'Club', 'Centre'])}",
    "roomno": lambda rng, split: str(100 + _below(rng, 800)), "ticketno": _ticket, "daydate": _daydate,
    "hash": lambda rng, split: "".join(pick(rng, "0123456789abcdef") for _ in range(7)),
    "login": lambda rng, split: names.given(rng, split).lower() if rng.random() < 0.6 else pick(rng, ["root", "admin", "www-data", "postgres", "deploy", "backup", "guest", "ubuntu", "git", "nobody"]),
    "line": lambda rng, split: f"{pick(rng, _LINES)} {_below(rng, 990) + 1}" if rng.random() < 0.85 else f"{pick(rng, 'SUNXR')}{_below(rng, 60) + 1}",
    "plate": lambda rng, split: f"{''.join(pick(rng, 'ABDEFGHKLMNPRST') for _ in range(2))}{pick(rng, ['-', ' '])}{''.join(pick(rng, 'ABDEFGHKLMNPRST') for _ in range(2))} {_below(rng, 900) + 10}",
    "recipe": lambda rng, split: pick(rng, _RECIPES).format(n=5 * (_below(rng, 80) + 1), s=_below(rng, 11) + 1),
}  # fmt: skip
