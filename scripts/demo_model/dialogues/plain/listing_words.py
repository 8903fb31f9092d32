"""Keys and values of lists: roles, events, parts of a house, days, amounts, things to do."""

from ..lexicon import OBJECTS
from ..splits import pick
from . import topics
from .aside_words import decorated
from .remark_values import WORDS, below, value

_ROLES = tuple(role.replace("_", " ") for role in (
    "captain goalkeeper treasurer chair secretary drummer vet groomer plumber dentist driver cook waiter dog_walker electrician babysitter lawyer coach referee "
    "accountant landlord director singer bassist painter tutor gardener mechanic midwife notary hairdresser cleaner caretaker piano_teacher team_lead timekeeper "
    "stage_manager tour_guide scout"
).split())  # fmt: skip
_EVENTS = tuple(event.replace("_", " ") for event in (
    "breakfast lunch dinner the_keynote the_opening registration the_workshop the_tour the_concert the_exam maths history chemistry choir the_raffle the_race the_talk "
    "the_interview yoga the_quiz the_parade the_fireworks the_panel poster_session the_award_show swimming the_cake_sale the_first_heat the_final storytelling the_auction"
).split())  # fmt: skip
_PARTS = tuple(part.replace("_", " ") for part in (
    "the_nursery the_hallway the_kitchen the_bathroom the_study the_shed the_side_gate the_front_gate the_back_door the_garage the_attic the_cellar the_porch the_bike_shed "
    "the_safe the_alarm the_locker the_big_boat the_small_boat the_fence the_bedroom the_guest_room the_office the_mail_box the_pool the_studio the_barn the_left_door"
).split())  # fmt: skip
ORDINALS = "first second third fourth fifth".split()
_UNITS = "g,kg,ml,l,cups,spoons,pinches,tablespoons,slices,handfuls,tins,grams,litres,teaspoons,drops".split(",")
_TASKS = tuple(task.replace("_", " ") for task in (
    "call_the_bank pay_the_rent water_the_plants pick_up_the_cake feed_the_fish wash_the_car book_the_flights renew_the_passport sign_the_form peel_the_onions boil_the_water "
    "open_the_valve close_the_window press_the_button send_the_letter buy_stamps return_the_books clean_the_oven fix_the_bike charge_the_drone sweep_the_yard"
).split())  # fmt: skip


def key_of(rng, split: str, kind: str) -> str:
    if kind == "theobject":
        noun = pick(rng, OBJECTS) if rng.random() < 0.7 else pick(rng, WORDS)
        return pick(rng, ["the ", "the ", "", "my "]) + noun
    if kind == "theevent":
        return pick(rng, _EVENTS)
    if kind == "thepart":
        return (
            pick(rng, _PARTS)
            if rng.random() < 0.75
            else f"the {pick(rng, WORDS)} {pick(rng, ['door', 'room', 'boat', 'gate', 'box'])}"
        )
    if kind == "role":
        return pick(rng, _ROLES)
    if kind == "dayname":
        return topics.value(rng, split, "day")
    if kind == "ordinalkey":
        return pick(rng, ORDINALS)
    return decorated(rng, value(rng, split, kind)) if kind == "firstname" else value(rng, split, kind)


def value_of(rng, split: str, kind: str) -> str:
    if kind == "measure":
        style = rng.random()
        if style < 0.2:
            return f"{pick(rng, ['half a', 'a', 'one', 'a good'])} {pick(rng, ['cup', 'spoon', 'pinch', 'pound', 'litre', 'tin', 'handful'])}"
        return f"{below(rng, 20) * 5 + 2 if style < 0.6 else below(rng, 9) + 2} {pick(rng, _UNITS)}"
    if kind == "task":
        task = pick(rng, _TASKS)
        return task if rng.random() < 0.7 else f"{task.split()[0]} the {pick(rng, WORDS)}"
    if kind in ("band", "person", "firstname"):
        return decorated(rng, value(rng, split, kind))
    return value(rng, split, kind)
