"""Functions in the shape of OpenAI's API, requests that need them, their calls and results. Everything is drawn anew."""

from dataclasses import dataclass
from typing import Any

from . import names, values
from .lexicon import ADJECTIVES, ATTRIBUTES, FOODS, OBJECTS
from .splits import pick

_VERBS = """get set find send create delete update search book order check list add remove start stop open close play call reserve schedule cancel translate convert
look_up fetch read write move rename share print scan measure track buy sell rent lock unlock turn_on turn_off show count compare save load post invite notify""".split()
# Functions that people try first. Parameters: name, type of value, JSON type.
_KNOWN = (
    ("get_weather", "Get the current weather of a city", (("city", "town", "string"),), ("what is the weather in {city}|what's the weather like in {city}|weather in {city}|how is the weather in {city} right now|check the weather in {city}|is it raining in {city}|get the weather for {city}|tell me the weather in {city}")),
    ("send_email", "Send an e-mail", (("to", "person", "string"), ("subject", "phrase", "string")), ("send an e-mail to {to} about {subject}|email {to}, subject {subject}|write a mail to {to} with the subject {subject}|send {to} an email with the subject {subject}")),
    ("set_timer", "Set a timer", (("minutes", "integer", "integer"),), ("set a timer for {minutes} minutes|start a timer of {minutes} minutes|timer {minutes} minutes|wake me in {minutes} minutes|remind me in {minutes} minutes|please set the timer to {minutes} minutes")),
    ("get_time", "Get the current time in a city", (("city", "town", "string"),), ("what time is it in {city}|current time in {city}|tell me the time in {city}|how late is it in {city}|what's the time in {city}")),
    ("search_web", "Search the web", (("query", "phrase", "string"),), ("search the web for {query}|search for {query}|look up {query} online|google {query}|find something about {query}|search {query}")),
    ("calculate", "Evaluate an arithmetic expression", (("expression", "sum", "string"),), ("what is {expression}|calculate {expression}|compute {expression}|how much is {expression}|{expression}")),
    ("play_music", "Play a song", (("title", "title", "string"),), ("play {title}|put on {title}|I want to hear {title}|please play the song {title}|start playing {title}")),
    ("book_table", "Reserve a table in a restaurant", (("restaurant", "org", "string"), ("time", "time", "string"), ("people", "integer", "integer")), ("book a table at {restaurant} at {time} for {people} people|reserve a table for {people} at {restaurant}, {time}|table for {people} at {restaurant} at {time} please")),
    ("create_event", "Add an event to the calendar", (("title", "phrase", "string"), ("day", "day", "string"), ("time", "time", "string")), ("add {title} to my calendar on {day} at {time}|create an event {title} on {day}, {time}|put {title} in the calendar for {day} at {time}|schedule {title} on {day} at {time}")),
    ("get_stock_price", "Get the price of a share", (("company", "company", "string"),), ("what is the share price of {company}|stock price of {company}|how much is a share of {company}|get the stock price for {company}")),
    ("translate", "Translate a text", (("text", "phrase", "string"), ("language", "language", "string")), ("translate {text} to {language}|how do you say {text} in {language}|say {text} in {language}|what is {text} in {language}")),
    ("convert_currency", "Convert an amount of money", (("amount", "integer", "integer"), ("currency", "money", "string")), ("convert {amount} euros to {currency}|how much is {amount} euros in {currency}|{amount} euros in {currency}")),
    ("turn_on_light", "Switch the light of a room on", (("room", "place", "string"),), ("turn on the light in {room}|switch on the light in {room}|light on in {room} please|make it bright in {room}")),
    ("call_phone", "Call somebody", (("name", "person", "string"),), ("call {name}|phone {name}|please call {name}|give {name} a ring|I want to talk to {name}")),
    ("get_route", "Find the way between two places", (("start", "town", "string"), ("destination", "town", "string")), ("how do I get from {start} to {destination}|route from {start} to {destination}|directions from {start} to {destination}|find a way from {start} to {destination}")),
    ("set_thermostat", "Set the heating of a room", (("room", "place", "string"), ("degrees", "decimal", "number")), ("set the heating in {room} to {degrees} degrees|make it {degrees} degrees in {room}|heat {room} to {degrees}|{room} at {degrees} degrees please")),
    ("send_message", "Send a message", (("to", "given", "string"), ("text", "phrase", "string"), ("urgent", "boolean", "boolean")), ("send {to} a message: {text}, urgent: {urgent}|message {to}, text {text}, urgent {urgent}|tell {to} about {text} (urgent: {urgent})")),
    ("add_to_list", "Add items to the shopping list", (("items", "list", "array"),), ("add {items} to my list|put {items} on the shopping list|shopping list: {items}|I have to buy {items}, put it on the list|please add {items}")),
    ("order_food", "Order a meal", (("dishes", "list", "array"), ("time", "time", "string")), ("order {dishes} for {time}|I'd like {dishes} at {time}|get me {dishes} for {time} please|please order {dishes}, delivery at {time}")),
    ("invite_people", "Invite people to an event", (("people", "names", "array"), ("day", "day", "string")), ("invite {people} for {day}|send an invitation to {people}, {day}|ask {people} to come on {day}|invite {people} on {day} please")),
    ("save_contact", "Save a contact", (("name", "given", "string"), ("address", "object", "object")), ("save {name} as a contact, {address}|new contact {name}: {address}|add {name} to my contacts with {address}")),
    ("get_forecast", "Get the forecast of some days", (("city", "town", "string"), ("days", "integer", "integer"), ("units", "enum:metric/imperial/kelvin", "string")), ("forecast for {city}, {days} days, {units}|how will it be in {city} the next {days} days, in {units} units|{days} days forecast {city} {units}")),
    ("set_light", "Set the light of a room", (("room", "place", "string"), ("brightness", "integer", "integer"), ("colour", "enum:red/green/blue/white/warm/yellow", "string")), ("make the light in {room} {colour} at {brightness} percent|light in {room}: {colour}, {brightness}|set the light of {room} to {colour} and {brightness}%")),
    ("find_flights", "Find flights", (("start", "town", "string"), ("destination", "town", "string"), ("day", "day", "string"), ("direct", "boolean", "boolean")), ("flights from {start} to {destination} on {day}, direct: {direct}|find a flight from {start} to {destination} for {day} (direct {direct})")),
    ("get_order_status", "Get the status of an order", (("order_id", "code", "string"),), ("where is my order {order_id}|status of order {order_id}|has order {order_id} been sent|check order {order_id}|track the order {order_id}")),
    ("find_restaurant", "Find a restaurant", (("cuisine", "enum:italian/indian/thai/french/mexican/greek/chinese", "string"), ("city", "town", "string")), ("find a {cuisine} restaurant in {city}|where can I eat {cuisine} in {city}|{cuisine} food in {city}|I'm in {city} and want {cuisine} food")),
    ("find_contact", "Look somebody up in the address book", (("name", "person", "string"),), ("look up {name} in my contacts|find {name} in the address book|search my contacts for {name}|open the contact of {name}")),
    ("get_news", "Get news about a topic", (("topic", "phrase", "string"),), ("news about {topic}|any news on {topic}|get me the news about {topic}|show me news on {topic}")),
    ("roll_dice", "Roll dice", (("sides", "integer", "integer"),), ("roll a dice with {sides} sides|throw a die with {sides} sides|roll a {sides}-sided die")),
    ("get_distance", "Get the distance between two places", (("start", "town", "string"), ("destination", "town", "string")), ("how far is it from {start} to {destination}|distance from {start} to {destination}|distance between {start} and {destination}|how far is {start} from {destination}")),
    ("list_files", "List the files of a folder", (("folder", "word", "string"), ("hidden", "boolean", "boolean")), ("list the files in {folder}, hidden: {hidden}|show the folder {folder} with hidden {hidden}|files in {folder} (hidden: {hidden})")),
)  # fmt: skip


@dataclass(frozen=True)
class Parameter:
    """kind: a type of `values`, or integer, decimal, boolean, enum:a/b/c, list, names, object."""

    name: str
    kind: str
    json_type: str

    @property
    def schema(self) -> dict[str, Any]:
        found: dict[str, Any] = {"type": self.json_type}
        if self.kind.startswith("enum:"):
            found["enum"] = self.kind[5:].split("/")
        elif self.json_type == "array":
            found["items"] = {"type": "string"}
        elif self.json_type == "object":
            found["properties"] = {"street": {"type": "string"}, "city": {"type": "string"}}
        return found


@dataclass(frozen=True)
class Function:
    name: str
    description: str
    parameters: tuple[Parameter, ...]
    requests: tuple[str, ...]

    @property
    def schema(self) -> dict[str, Any]:
        properties = {p.name: p.schema for p in self.parameters}
        return {
            "type": "function",
            "function": {
                "name": self.name, "description": self.description,
                "parameters": {"type": "object", "properties": properties, "required": list(properties)},
            },
        }  # fmt: skip


FUNCTIONS = tuple(
    Function(name, description, tuple(Parameter(*p) for p in parameters), tuple(requests.split("|")))
    for name, description, parameters, requests in _KNOWN
)


def value(rng, split: str, parameter: Parameter) -> Any:
    if parameter.kind == "integer":
        return int(rng.random() * 90) + 1
    if parameter.kind == "decimal":
        return float(f"{int(rng.random() * 90) + 1}.{int(rng.random() * 9) + 1}")
    if parameter.kind == "boolean":
        return rng.random() < 0.5
    if parameter.kind.startswith("enum:"):
        return pick(rng, parameter.kind[5:].split("/"))
    if parameter.kind in ("list", "names"):
        words = [
            pick(rng, FOODS) if parameter.kind == "list" else names.given(rng, split)
            for _ in range(1 + int(rng.random() * 4))
        ]
        return list(dict.fromkeys(words))
    if parameter.kind == "given":
        return names.given(rng, split)
    if parameter.kind == "object":
        return {"street": values.value(rng, split, "address"), "city": names.town(rng, split)}
    if parameter.kind == "sum":
        return f"{int(rng.random() * 900)} {pick(rng, '+-*/')} {int(rng.random() * 900)}"
    if parameter.kind == "money":
        return pick(rng, ["dollars", "yen", "pounds", "francs", "crowns", "USD", "JPY", "GBP", "CHF"])
    return values.value(rng, split, parameter.kind)


def said(value: Any) -> str:
    """An argument as a request says it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return value[0] if len(value) == 1 else f"{', '.join(value[:-1])} and {value[-1]}"
    if isinstance(value, dict):
        return ", ".join(f"{key} {part}" for key, part in value.items())
    return str(value)


def leaves(value: Any) -> list[str]:
    """The words and numbers of an argument that the request holds."""
    if isinstance(value, bool):
        return []
    if isinstance(value, list | dict):
        parts = value if isinstance(value, list) else list(value.values())
        return [leaf for part in parts for leaf in leaves(part)]
    return [str(value)]


def invented(rng, split: str) -> Function:
    """ "set_kettle_temperature(kettle_number, level)": a verb, a noun, one to three parameters."""
    verb, noun = pick(rng, _VERBS), pick(rng, OBJECTS) if rng.random() < 0.8 else names.word(rng, split).lower()
    said = verb.replace("_", " ")
    parameters: list[Parameter] = []
    for _ in range(1 + int(rng.random() * 3)):
        name = pick(rng, ATTRIBUTES).lower().replace(" ", "_").replace("'", "")
        if all(name != p.name for p in parameters):
            kind = values.type_for(rng, name.replace("_", " ")) if rng.random() < 0.75 else "integer"
            special = rng.random()
            if special < 0.08:
                parameters.append(Parameter(name, "boolean", "boolean"))
            elif special < 0.16:
                options = "/".join(dict.fromkeys(pick(rng, ADJECTIVES) for _ in range(2 + int(rng.random() * 4))))
                parameters.append(Parameter(name, f"enum:{options}", "string"))
            elif special < 0.24:
                parameters.append(Parameter(name, pick(rng, ["list", "names"]), "array"))
            elif special < 0.3:
                parameters.append(Parameter(name, "decimal", "number"))
            elif special < 0.33:
                parameters.append(Parameter(name, "object", "object"))
            else:
                parameters.append(Parameter(name, kind, "integer" if kind == "integer" else "string"))
    listed = [(p.name.replace("_", " "), p.name) for p in parameters]
    joins = [
        ", ".join(f"{said_name} {{{name}}}" for said_name, name in listed), " and ".join(f"{said_name} {{{name}}}" for said_name, name in listed),
        "; ".join(f"{said_name}: {{{name}}}" for said_name, name in listed),
    ]  # fmt: skip
    requests = tuple(
        form.format(v=said, n=noun, j=join)
        for join in joins
        for form in (
            "{v} the {n} with {j}",
            "please {v} the {n}, {j}",
            "{v} {n}: {j}",
            "can you {v} the {n} with {j}",
            "{v} a {n} with {j}",
            "I want you to {v} the {n}, {j}",
            "{n}, {v}, {j}",
        )
    )
    return Function(
        f"{verb}_{noun.replace(' ', '_').replace('-', '_')}",
        f"{said.capitalize()} the {noun}",
        tuple(parameters),
        requests,
    )


def toolbox(rng, split: str) -> list[Function]:
    """One to six functions, half of them well known."""
    functions: list[Function] = []
    for _ in range(1 + int(rng.random() ** 1.5 * 6)):
        function = pick(rng, FUNCTIONS) if rng.random() < 0.5 else invented(rng, split)
        if all(function.name != other.name for other in functions):
            functions.append(function)
    return functions
