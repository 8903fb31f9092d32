"""Values of everyday scenes: days, schedules, errands, presents, reasons."""

from . import names
from .lexicon import (
    ADJECTIVES,
    ATTRIBUTES,
    COLOURS,
    DAYS,
    FOODS,
    JOBS,
    MONTHS,
    OBJECTS,
    ORGS,
    RELATIONS,
    TRANSITIVES,
    words,
)
from .splits import pick

_ORDINALS = [f"{n}{'th' if 4 <= n <= 20 else {1: 'st', 2: 'nd', 3: 'rd'}.get(n % 10, 'th')}" for n in range(1, 32)]
_NUMBERS = "two three four five six seven eight nine ten eleven twelve".split()
COMPARATIVES = words("""bigger larger smaller heavier lighter faster slower older newer cheaper longer shorter wider taller stronger warmer
better quieter louder softer thicker thinner deeper brighter cleaner stiffer""")
PERSONAL = words("""older younger taller shorter stronger faster slower louder quieter smarter richer busier kinder funnier stricter
lazier braver calmer happier thinner heavier""")
PROFESSIONS = words("""dentist doctor vet hairdresser physio optician lawyer accountant barber therapist plumber electrician carpenter
painter gardener mechanic locksmith roofer tailor cleaner tutor trainer masseur tiler glazier chimney_sweep eye_doctor tax_adviser""")
DOCUMENTS = words("""passport visa driving_licence ID_card bus_pass gym_membership library_card travel_insurance credit_card work_permit
parking_permit subscription contract lease student_card warranty season_ticket fishing_licence membership""")
MEDICINES = words("""ibuprofen aspirin insulin magnesium iron vitamin_D vitamin_B12 antibiotics cough_syrup eye_drops the_blue_pills the_white_pills
the_red_capsules the_pink_tablets paracetamol melatonin zinc the_nose_spray the_ointment the_painkillers the_heart_pills the_green_drops""")
BINS = words("""the_green_bin the_black_bin the_blue_bin the_brown_bin the_yellow_bin the_trash the_garbage the_recycling the_paper
the_glass the_cardboard the_garden_waste the_compost the_bulky_waste the_plastic the_food_waste the_old_clothes the_laundry the_post""")
DISHES = words("""chili lasagne soup stew bread cake curry pie risotto goulash pizza salad pancakes roast casserole bread_pudding muffins
cookies brownies meatloaf quiche pasta_sauce ratatouille gravy gingerbread cheesecake apple_pie lentil_soup banana_bread focaccia""")
OCCASIONS = words("""Christmas her_birthday his_birthday the_birthday Easter the_wedding graduation Mother's_Day Father's_Day the_anniversary
New_Year the_housewarming Valentine's_Day Hanukkah Eid the_christening retirement the_baby_shower""")
ACTIVITIES = words("""swimming running climbing dancing rowing sailing cycling judo yoga pilates karate ballet singing pottery painting
fencing boxing skating surfing hiking riding archery bowling gardening chess diving gymnastics woodworking drumming knitting sculpting""")
OCCUPIED = words(
    "bakery pharmacy library gym pool museum bank post_office butcher cinema supermarket market bookshop laundry garage clinic cafe restaurant zoo swimming_pool recycling_centre town_hall florist hardware_shop bike_shop school_office canteen kiosk barber"
)
KIDS = words(
    "our_son our_daughter my_son my_daughter my_nephew my_niece my_grandson my_granddaughter the_twins Ben Mia Leo Lucy Noah Emma Zoe Max Ida"
)
CONTACTS = words(
    "the_caretaker the_landlord the_plumber the_doctor the_vet the_office the_school the_bank the_taxi the_babysitter the_hotel the_insurance the_pharmacy the_garage the_help_desk the_neighbours the_reception the_club my_boss my_lawyer"
)
VEHICLES = words(
    "the_car my_car the_bike my_bike the_motorbike my_scooter the_van the_lawnmower my_laptop my_phone the_dishwasher my_watch the_boat the_tractor the_camper the_washing_machine our_car the_truck the_piano my_camera"
)
_PETS = words(
    "dog cat horse rabbit parrot hamster goldfish tortoise canary guinea_pig budgie pony ferret goat lizard kitten puppy donkey hen snake"
)
_NETWORKS = words(
    "wifi Wifi WLAN printer guest_wifi router laptop server Netflix alarm email_account office_wifi tablet safe admin_account bank_app projector NAS streaming_account booking_site intranet vault backup_drive work_laptop phone hotspot VPN"
)
_LOCKED = words(
    "gate garage front_door back_door safe alarm bike_lock locker suitcase cellar key_box office shed main_door parking_garage gym mailbox vault phone_lock padlock barn staff_entrance lift side_gate tool_shed pool gun_cabinet elevator bathroom"
)
_ORDERS = words(
    "order booking ticket invoice passport customer membership policy case tracking reservation claim account loyalty_card library_card insurance room voucher contract registration parcel rental tax student_ID serial frequent_flyer gift_card"
)
_GROUPS = words(
    "choir book_club band yoga_class chess_club support_group orchestra drama_group football_team running_group knitting_circle scout_troop debating_society board_game_night study_group rowing_team quiz_night sewing_circle reading_group band_practice language_class parents'_group photo_club bridge_club"
)
_TASKS = words(
    "report slides budget presentation newsletter poster translation invoice proposal survey draft menu website catering tax_return essay homework thesis application seating_plan music invitations decoration contract timetable minutes release backup inventory playlist cake_order catalogue data_analysis bug_fix login_page test_plan grant_application poster_design"
)
_HOUSEHOLD = words("""spare_key first_aid_kit stapler fuse_box screwdriver hammer ladder toolbox torch remote scissors tape extension_cord vacuum_cleaner iron sewing_kit
corkscrew spare_bulbs fire_extinguisher water_meter stopcock cat_carrier passport charger umbrella good_china wrapping_paper glue batteries bike_pump tent sleeping_bag camera box_of_photos Christmas_decorations
drill paint tax_folder birth_certificate will spare_tyre car_key cellar_key house_key garden_hose thermometer medicine instruction_manual picnic_blanket air_pump spare_glasses hot-water_bottle cookie_tin whisky sledge""")
_CARS = words(
    "the_car my_car my_bike the_van our_car the_bike my_motorbike the_scooter the_rental_car the_camper the_truck my_moped the_jeep"
)
_SCHOOL = words(
    "maths biology chemistry history French Spanish PE music art geography physics Latin English drama economics philosophy computing statistics religion woodwork linear_algebra algorithms anatomy"
)
_SUBSCRIPTIONS = words(
    "the_gym Netflix the_newspaper the_phone_contract the_internet the_insurance the_cloud_storage the_parking_space the_music_service the_magazine the_storage_unit the_electricity the_water the_bus_pass the_language_app the_web_hosting the_box_of_vegetables"
)
_GAMES = words(
    "final semi-final match game derby cup_final friendly quarter-final chess_game tennis_match quiz playoff hockey_game opener rematch tournament season_opener"
)
_ILLNESSES = words(
    "flu a_cold a_broken_arm measles a_sprained_ankle migraine bronchitis a_fever chickenpox hay_fever asthma tonsillitis a_broken_leg a_bad_back pneumonia a_stomach_bug an_ear_infection sunburn a_toothache diabetes Covid mumps food_poisoning a_sore_throat"
)
_ROLES = words(
    "president captain chair treasurer secretary director manager coach founder owner head_chef spokesperson deputy leader conductor principal mayor chief_editor accountant caretaker goalkeeper head_nurse CEO CTO head_of_sales team_lead curator landlord trainer producer host chairman intern head_gardener"
)
_METRICS = words(
    "revenue profit turnover the_budget the_deficit output attendance the_error_rate the_growth_rate inflation the_number_of_visitors churn the_workload the_headcount membership rainfall the_water_level production the_harvest the_electricity_bill the_number_of_sales traffic the_average_price conversion uptime"
)
_TOGETHER = words(
    "play_chess play_tennis go_hiking go_swimming cook_dinner meet_for_coffee watch_the_game go_to_the_cinema play_cards work_out have_lunch sing_together go_shopping paint_the_fence study_together go_dancing record_the_song clean_the_garage rehearse play_squash go_fishing visit_the_museum bake_bread ride_to_work"
)
_BRANDS = words(
    "Volvo Toyota Fiat Ford Skoda Kia Honda Mazda Opel Tesla Saab Audi Seat Renault Nissan Subaru Lada Peugeot Jeep Suzuki"
)
_PARTICIPLES = words(
    "repaired repainted cleaned replaced inspected insured sharpened polished tuned serviced sold washed restored tested valued upholstered moved shortened welded rewired oiled waxed dyed framed photographed scanned recycled"
)
_MEALS = words("breakfast lunch dinner supper dessert the_picnic the_party brunch starters the_barbecue tea the_trip")
_ROOMS = words(
    "kitchen bathroom bedroom living_room hallway guest_room attic cellar study nursery dining_room garage office playroom balcony spare_room laundry_room library pantry conservatory"
)
_TOOLS = words(
    "Python Node Ruby Rust Docker Postgres Redis the_backend the_frontend the_simulator the_parser the_scheduler the_crawler Nginx Java Go Terraform the_dashboard the_compiler the_linter the_bot the_daemon the_test_suite"
)
_STATES = words(
    "cancelled confirmed approved rejected pending done delayed broken finished paid unpaid open closed sold_out fully_booked on_hold archived out_of_order empty full locked reserved under_review lost online offline shipped returned expired unknown"
)
_DIRECTIONS = words(
    "left right straight_on north south east west uphill downhill north-west south-east back sharp_left slightly_right"
)
_ORDINAL_WORDS = words("first second third fourth fifth sixth seventh eighth ninth tenth last top bottom middle")
_REASONS = """the {o} broke|{p} was ill|the train was late|there was too much traffic|the {o} got stolen|{p} forgot the {o}|the {a} {o} didn't work|the road was closed|it rained all day
the alarm clock didn't ring|{p} had a fever|the {o} was missing|the bus never came|the dog ate the {o}|{p} missed the bus|the {a} {o} is broken|the bridge is closed|the battery was empty|{p} lost the {o}
the kids were sick|the meeting took too long|the power went out|the {o} is too {a}|there was a strike|the flight got cancelled|{p} needs the car|the {o} caught fire|a pipe burst|the shop ran out of {f}""".replace("\n", "|").split("|")  # fmt: skip
_ERRANDS = """pick up the kids|pick up {p}|bring the {f}|do the dishes|walk the dog|feed the cat|water the plants|call {p}|book the hotel|buy the tickets|drive {p} home|clean the {o}|cook dinner|take out the trash
send the invitations|write the report|give the speech|open the shop|lock up|set the table|chair the meeting|take notes|pay the bill|mow the lawn|order the {f}|collect the parcel|fix the {o}|paint the {o}
bring the {o}|carry the {o}|present the {a} {o}|drive the van|take {p} to the airport|help {p} with the move|bake the cake|make the {f}|print the {o}|return the {o}|look after the {o}|babysit|do the shopping
translate the letter|record the song|test the {o}|pack the {o}|clean the kitchen|play the {o}|sign the contract|check the {o}|order a {o}|wash the car|do the accounts|run the stall|welcome the guests""".replace("\n", "|").split("|")  # fmt: skip


def below(rng, n: int) -> int:
    return int(rng.random() * n)


_SINGULAR = [noun for noun in OBJECTS if not noun.endswith("s") or noun.endswith("ss")]


def _noun(rng, split) -> str:
    return pick(rng, _SINGULAR) if rng.random() < 0.88 else names.word(rng, split).lower()


def with_article(noun: str) -> str:
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"


def dayish(rng, split) -> str:
    """A day that follows "on"."""
    draw, day, ordinal, month = rng.random(), pick(rng, DAYS), pick(rng, _ORDINALS), pick(rng, MONTHS)
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
    draw, day, other, count = rng.random(), pick(rng, DAYS), pick(rng, DAYS), pick(rng, _NUMBERS)
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


def _gift(rng, split) -> str:
    draw, noun = rng.random(), _noun(rng, split)
    if draw < 0.35 and not noun.endswith("s"):
        return with_article(noun)
    if draw < 0.7 and not noun.endswith("s"):
        return with_article(f"{pick(rng, ADJECTIVES)} {noun}")
    return pick(
        rng,
        [
            f"a box of {pick(rng, FOODS)}",
            f"tickets for {names.word(rng, split)}",
            f"a book about {_noun(rng, split)}",
            f"{pick(rng, _NUMBERS)} {pick(rng, OBJECTS)}s" if not noun.endswith("s") else f"new {noun}",
            f"a trip to {names.town(rng, split)}",
            f"{pick(rng, COLOURS)} {pick(rng, ['socks', 'gloves', 'shoes', 'earrings', 'roses', 'candles'])}",
        ],
    )


def _shopping(rng, split) -> str:
    def item() -> str:
        draw, food = rng.random(), pick(rng, FOODS) if rng.random() < 0.75 else _noun(rng, split)
        if draw < 0.65:
            return food
        return (
            f"{below(rng, 12) + 2} {food}"
            if draw < 0.72
            else pick(
                rng,
                [
                    f"a kilo of {food}",
                    f"some {food}",
                    f"{pick(rng, _NUMBERS)} bags of {food}",
                    f"{below(rng, 900) + 100} g of {food}",
                    f"a box of {food}",
                ],
            )
        )

    items = [item() for _ in range(1 + below(rng, 4))]
    if len(items) == 1:
        return items[0]
    last = pick(rng, [" and ", " and ", ", ", " & "])
    return ", ".join(items[:-1]) + last + items[-1]


def _line(rng, split) -> str:
    number = below(rng, 300) + 1
    return pick(
        rng,
        [
            f"bus {number}",
            f"line {number}",
            f"tram {number}",
            f"the {number}",
            f"the {number} bus",
            f"the U{below(rng, 9) + 1}",
            f"the {pick(rng, COLOURS)} line",
            f"the S{below(rng, 30) + 1}",
            f"the {names.word(rng, split)} Express",
            f"train {number}",
        ],
    )


def _fill(form: str, rng, split) -> str:
    if "{" not in form:
        return form
    return form.format(o=_noun(rng, split), p=names.given(rng, split), a=pick(rng, ADJECTIVES), f=pick(rng, FOODS))


def _combo(rng, split) -> str:
    return pick(rng, "-- /").join(str(below(rng, 60)) for _ in range(3 + below(rng, 2)))


def _dose(rng, split) -> str:
    return pick(
        rng,
        [
            f"{below(rng, 90) * 10 + 10} mg",
            f"{below(rng, 50) + 1} ml",
            f"{pick(rng, ['one', *_NUMBERS[:5]])} tablets".replace("one tablets", "one tablet"),
            f"{below(rng, 30) + 2} drops",
            f"{below(rng, 9) + 2} pills",
            "half a tablet" if rng.random() < 0.3 else f"{below(rng, 95) + 5} units",
            f"{below(rng, 12) + 2} spoonfuls",
        ],
    )


def _names(rng, split) -> str:
    chosen = [names.given(rng, split) for _ in range(2 + below(rng, 3))]
    return ", ".join(chosen[:-1]) + " and " + chosen[-1]


def _title(rng, split) -> str:
    return (
        f"{pick(rng, ['Mr', 'Mr', 'Mrs', 'Ms', 'Dr', 'Herr', 'Frau', 'Madame'])} {names.surname(rng, split)}"
        if rng.random() < 0.5
        else names.given(rng, split)
    )


def _server(rng, split) -> str:
    kind = pick(
        rng,
        [
            "server",
            "database",
            "gateway",
            "cache",
            "router",
            "printer",
            "backend",
            "proxy",
            "host",
            "cluster",
            "service",
            "bot",
        ],
    )
    draw, number = rng.random(), below(rng, 40) + 1
    if draw < 0.35:
        return f"the {names.word(rng, split)} {kind}"
    if draw < 0.6:
        return f"the {pick(rng, ['mail', 'web', 'test', 'build', 'staging', 'backup', 'file', 'print', 'login', 'game'])} {kind}"
    return f"{kind}-{number}" if draw < 0.8 else f"{names.word(rng, split).lower()}{pick(rng, ['', '-', '0'])}{number}"


def _port(rng, split) -> str:
    return str(below(rng, 60000) + 20)


def _parking(rng, split) -> str:
    level = pick(
        rng,
        [
            f"{below(rng, 9) + 1}",
            f"{pick(rng, 'ABCDEFG')}",
            f"-{below(rng, 4) + 1}",
            f"{pick(rng, 'ABCDEFG')}{below(rng, 90) + 1}",
        ],
    )
    return pick(
        rng,
        [
            f"on level {level}",
            f"on floor {level}",
            f"in row {level}",
            f"in spot {below(rng, 400) + 1}",
            f"on deck {level}",
            f"in section {level}",
            f"on {names.word(rng, split)} Street",
            f"behind the {pick(rng, OCCUPIED)}",
            f"in front of the {pick(rng, OCCUPIED)}",
            f"next to the {pick(rng, OCCUPIED)}",
            f"on level {level}, spot {below(rng, 200) + 1}",
            f"in bay {below(rng, 90) + 1}",
            f"under the {pick(rng, ['bridge', 'big oak', 'lamp post', 'old tree', 'railway arch'])}",
        ],
    )


def _score(rng, split) -> str:
    a, b = below(rng, 12), below(rng, 12)
    return pick(
        rng, [f"{a}-{b}", f"{a}:{b}", f"{a} to {b}", f"{a}–{b}", f"{below(rng, 90) + 20}-{below(rng, 90) + 20}"]
    )


def _seat(rng, split) -> str:
    return f"{pick(rng, ['seat ', 'seat ', '', 'row '])}{below(rng, 60) + 1}{pick(rng, 'ABCDEFHK')}"


def _placename(rng, split) -> str:
    return names.word(rng, split) + pick(rng, ["", "", "", "ia", "land", "stan"])


def _plain_noun(rng, split) -> str:
    draw = rng.random()
    if draw < 0.6:
        return pick(rng, ATTRIBUTES)
    if draw < 0.75:
        return names.word(rng, split).lower()
    kind = pick(
        rng,
        [
            "code",
            "number",
            "name",
            "password",
            "size",
            "date",
            "price",
            "colour",
            "time",
            "address",
            "limit",
            "count",
            "title",
            "key",
            "phone",
            "bill",
            "ID",
            "word",
        ],
    )
    return f"{_noun(rng, split)} {kind}" if draw < 0.9 else f"{pick(rng, ADJECTIVES)} {_noun(rng, split)}"


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


def _spoken(rng, split) -> str:
    draw = rng.random()
    if draw < 0.3:
        return names.word(rng, split).lower()
    if draw < 0.55:
        return f"{pick(rng, ADJECTIVES)} {_noun(rng, split)}"
    return f"{_noun(rng, split)} and {_noun(rng, split)}" if draw < 0.7 else _noun(rng, split)


def _verb_phrase(rng, split) -> str:
    draw = rng.random()
    if draw < 0.4:
        return _fill(pick(rng, _ERRANDS), rng, split)
    verb, noun = pick(rng, TRANSITIVES)[0], _noun(rng, split)
    if draw < 0.75:
        return (
            f"{verb} {pick(rng, ['the', 'the', 'a', 'my', 'an old'])} {pick(rng, [pick(rng, ADJECTIVES) + ' ', ''])}{noun}".replace(
                " a a", " an a"
            )
            .replace(" a e", " an e")
            .replace(" a o", " an o")
            .replace(" a i", " an i")
            .replace(" a u", " an u")
        )
    return pick(
        rng,
        [
            f"move to {names.town(rng, split)}",
            f"visit {names.given(rng, split)}",
            f"learn {pick(rng, ['Spanish', 'Polish', 'Latin', 'Dutch', 'Welsh', 'Greek'])}",
            f"call {names.given(rng, split)}",
            f"go {pick(rng, ACTIVITIES)}",
            f"write to {names.given(rng, split)}",
            f"travel to {names.town(rng, split)}",
            f"study {pick(rng, ['law', 'medicine', 'physics', 'art', 'music', 'history'])}",
            f"become a {pick(rng, ['baker', 'nurse', 'pilot', 'farmer', 'painter', 'judge'])}",
        ],
    )


MAKERS = {
    "dayish": dayish, "schedule": schedule, "gift": _gift, "children": _names, "shopping": _shopping, "line": _line, "combo": _combo, "dose": _dose,
    "ordinalday": lambda rng, split: f"the {pick(rng, _ORDINALS)}", "landlord": _title, "firstname": names.given, "name": names.given,
    "relday": lambda rng, split: pick(rng, ["tomorrow", "next week", "this weekend", "tonight", "next month", "in two weeks", "today", "tomorrow morning", f"next {pick(rng, DAYS)}", f"this {pick(rng, DAYS)}", f"in {pick(rng, _NUMBERS)} days", f"in {pick(rng, MONTHS)}", f"in {pick(rng, _NUMBERS)} weeks"]),
    "profession": lambda rng, split: pick(rng, PROFESSIONS), "document": lambda rng, split: pick(rng, DOCUMENTS),
    "medicine": lambda rng, split: pick(rng, MEDICINES) if rng.random() < 0.8 else names.word(rng, split), "collected": lambda rng, split: pick(rng, BINS),
    "dish": lambda rng, split: pick(rng, DISHES), "occasion": lambda rng, split: pick(rng, OCCASIONS), "activity": lambda rng, split: pick(rng, ACTIVITIES),
    "orgkind": lambda rng, split: pick(rng, OCCUPIED), "kid": lambda rng, split: pick(rng, KIDS) if rng.random() < 0.6 else names.given(rng, split),
    "contact": lambda rng, split: pick(rng, CONTACTS) if rng.random() < 0.45 else names.given(rng, split) if rng.random() < 0.6 else f"my {pick(rng, RELATIONS)}",
    "vehiclething": lambda rng, split: pick(rng, VEHICLES), "mything": lambda rng, split: f"my {pick(rng, [pick(rng, ADJECTIVES) + ' ', '', ''])}{_noun(rng, split)}",
    "object": _noun, "reason": lambda rng, split: _fill(pick(rng, _REASONS), rng, split), "errand": lambda rng, split: _fill(pick(rng, _ERRANDS), rng, split),
    "orgname": lambda rng, split: f"{pick(rng, ['Dr. ', 'Dr ', ''])}{names.surname(rng, split)}" if rng.random() < 0.4 else f"the {names.word(rng, split)} {pick(rng, ORGS)}",
    "contrast": lambda rng, split: pick(rng, COLOURS if rng.random() < 0.6 else ADJECTIVES), "comparative": lambda rng, split: pick(rng, COMPARATIVES),
    "personal": lambda rng, split: pick(rng, PERSONAL), "age": lambda rng, split: str(below(rng, 95) + 3), "temp": lambda rng, split: f"{below(rng, 25) * 10 + 40}{pick(rng, ['', '', ' degrees', '°C', ' C', '°'])}",
    "weekdays": lambda rng, split: f"{pick(rng, DAYS)}s" if rng.random() < 0.75 else f"{pick(rng, DAYS)}s and {pick(rng, DAYS)}s", "monthyear": lambda rng, split: f"{pick(rng, MONTHS)} {2024 + below(rng, 40)}" if rng.random() < 0.6 else pick(rng, MONTHS) if rng.random() < 0.3 else str(2024 + below(rng, 60)),
    "relation": lambda rng, split: pick(rng, RELATIONS), "errandthing": lambda rng, split: f"{pick(rng, TRANSITIVES)[0]} the {_noun(rng, split)}", "job_": lambda rng, split: pick(rng, JOBS),
    "year": lambda rng, split: str(1930 + below(rng, 110)),
    "petkind": lambda rng, split: pick(rng, _PETS), "animalname": names.given, "network": lambda rng, split: pick(rng, _NETWORKS) if rng.random() < 0.85 else names.word(rng, split),
    "lockthing": lambda rng, split: pick(rng, _LOCKED) if rng.random() < 0.85 else _noun(rng, split), "ordernoun": lambda rng, split: pick(rng, _ORDERS), "group": lambda rng, split: pick(rng, _GROUPS),
    "taskthing": lambda rng, split: pick(rng, _TASKS) if rng.random() < 0.8 else f"{names.word(rng, split)} {pick(rng, _TASKS)}", "householdthing": lambda rng, split: pick(rng, _HOUSEHOLD) if rng.random() < 0.7 else _noun(rng, split),
    "vehicle2": lambda rng, split: pick(rng, _CARS), "subjectschool": lambda rng, split: pick(rng, _SCHOOL), "subscription": lambda rng, split: pick(rng, _SUBSCRIPTIONS), "game": lambda rng, split: pick(rng, _GAMES),
    "server": _server, "port": _port, "parking": _parking, "score2": _score, "seatnumber": _seat, "placename": _placename, "weatherplace": names.town, "flight": lambda rng, split: f"{pick(rng, 'ABDEFKLQSTUVX')}{pick(rng, 'ABCFHKLNRWXY')}{pick(rng, ['', ' '])}{below(rng, 9000) + 100}",
    "shopsize": lambda rng, split: pick(rng, ["S", "M", "L", "XL", "XS", "XXL", "medium", "large", "small", f"{below(rng, 30) + 32}", f"{below(rng, 14) + 1}", f"{below(rng, 14) + 3}.5"]),
    "plural": lambda rng, split: (lambda noun: noun if noun.endswith("s") else f"{noun}es" if noun.endswith(("ch", "sh", "x")) else f"{noun}s")(_noun(rng, split) if rng.random() < 0.7 else f"{pick(rng, ADJECTIVES)} {_noun(rng, split)}"),
    "title2": lambda rng, split: pick(rng, [f"{pick(rng, ADJECTIVES).title()} {pick(rng, OBJECTS).title()}", f"The {pick(rng, OBJECTS).title()} of {names.town(rng, split)}", f"The {pick(rng, ADJECTIVES).title()} {pick(rng, JOBS).title()}", names.word(rng, split), f"Letters to {names.given(rng, split)}"]),
    "plainnoun": _plain_noun, "coords": _coordinates, "metricvalue": _metric_value, "period": _period, "textvalue": _spoken, "vp": _verb_phrase,
    "illness": lambda rng, split: pick(rng, _ILLNESSES), "role2": lambda rng, split: pick(rng, _ROLES), "metric": lambda rng, split: pick(rng, _METRICS), "thingtheydo": lambda rng, split: pick(rng, _TOGETHER),
    "brand": lambda rng, split: pick(rng, _BRANDS) if rng.random() < 0.4 else names.word(rng, split), "quantity2": lambda rng, split: pick(rng, [f"{below(rng, 90) * 10 + 20} g", f"{below(rng, 900) + 10} grams", f"{pick(rng, _NUMBERS)} cups", f"{below(rng, 12) + 2} spoons", "half a litre", f"{below(rng, 900) + 10} ml", "a pinch", f"{below(rng, 9) + 1}.5 kilos", f"{pick(rng, _NUMBERS)} handfuls", f"{below(rng, 20) + 2} slices"]),
    "reltime": lambda rng, split: pick(rng, [f"on {dayish(rng, split)}", f"at {below(rng, 12) + 1}{pick(rng, [' pm', 'am', 'pm', ':30', ':15', ':45 pm'])}", f"by {dayish(rng, split)}", "tomorrow", "tonight", "next week", f"before {pick(rng, DAYS)}", f"at {below(rng, 24)}:{below(rng, 60):02d}", f"in {pick(rng, _NUMBERS)} days", f"at {below(rng, 12) + 1} on {pick(rng, DAYS)}", f"this {pick(rng, DAYS)}", f"in {pick(rng, MONTHS)}", "after work", "before lunch", "during the break"]),
    "adjnoun": lambda rng, split: pick(rng, [f"in {names.town(rng, split)}", f"at the {pick(rng, OCCUPIED)}", f"near the {pick(rng, OCCUPIED)}", f"behind the {_noun(rng, split)}", f"under the {pick(rng, ADJECTIVES)} {_noun(rng, split)}", f"on the {pick(rng, ['bus', 'train', 'roof', 'stairs', 'beach', 'balcony', 'bench', 'plane'])}", f"next to the {_noun(rng, split)}", f"in the {pick(rng, ['garden', 'cellar', 'kitchen', 'attic', 'hallway', 'office', 'park', 'library'])}", f"at {names.given(rng, split)}'s place"]),
    "teamorg": lambda rng, split: pick(rng, [f"the {names.word(rng, split)} {pick(rng, ORGS)}", names.word(rng, split), f"the {pick(rng, _GROUPS)}", f"{names.word(rng, split)} {pick(rng, ['Ltd', 'Inc', 'Labs', 'Group', 'Media'])}", f"the {names.word(rng, split)} {pick(rng, ['club', 'team', 'society', 'foundation', 'project', 'union'])}"]),
    "languagefact": lambda rng, split: pick(rng, ["Welsh", "Latin", "Finnish", "Basque", "Maori", "Swahili", "Icelandic", names.word(rng, split), f"{names.word(rng, split)}ish"]), "textplace": lambda rng, split: f"the {pick(rng, ['cabin', 'camp', 'treasure', 'well', 'hut', 'tower', 'harbour', 'lighthouse', 'cave', 'spring', 'landing site', 'boat', 'base', 'cache'])}",
    "relday2": lambda rng, split: pick(rng, DAYS), "vehicle3": lambda rng, split: with_article(f"{pick(rng, ADJECTIVES)} {pick(rng, ['van', 'truck', 'bike', 'scooter', 'car', 'bus', 'jeep'])}"),
    "vp2": lambda rng, split: pick(rng, _PARTICIPLES), "meal": lambda rng, split: pick(rng, _MEALS), "room2": lambda rng, split: pick(rng, _ROOMS), "langtool": lambda rng, split: pick(rng, _TOOLS) if rng.random() < 0.7 else names.word(rng, split),
    "state": lambda rng, split: pick(rng, _STATES), "direction": lambda rng, split: pick(rng, _DIRECTIONS), "ordinalword": lambda rng, split: pick(rng, _ORDINAL_WORDS), "animal2": lambda rng, split: pick(rng, _PETS),
    "number2": lambda rng, split: pick(rng, [str(below(rng, 400) + 1), f"{below(rng, 100)}%", f"{below(rng, 40)}.{below(rng, 10)}", f"{below(rng, 90) + 5} degrees", f"level {below(rng, 12) + 1}", "low", "high", "medium", f"{below(rng, 12) + 1} bar", f"{below(rng, 900) + 100} watts", f"stage {below(rng, 9) + 1}", f"mode {pick(rng, 'ABCDE')}"]),
    "command": lambda rng, split: pick(rng, [f"make {names.word(rng, split).lower()}", f"./{names.word(rng, split).lower()}.sh", f"npm run {names.word(rng, split).lower()}", f"{names.word(rng, split).lower()} --{pick(rng, ADJECTIVES).replace(' ', '-')}", f"systemctl restart {names.word(rng, split).lower()}", f"python {names.word(rng, split).lower()}.py", f"pip install {names.word(rng, split).lower()}", f"docker start {names.word(rng, split).lower()}", f"sudo {names.word(rng, split).lower()} -{pick(rng, 'abcdfgr')}"]),
}  # fmt: skip
