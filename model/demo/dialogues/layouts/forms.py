"""Documents about one thing: bookings, invoices, settings, profiles, receipts, recipes. A line is a field."""

import json
import re

from .. import names
from ..clauses import Grammar
from ..phrases import Question, capital
from ..splits import pick
from .kinds import cell
from .tables import Line, agree, of_split, some

#     # name | titles
#     field: labels | kind of value | questions
_TEXT = """
# booking | Booking confirmation; Reservation; Your booking; Hotel booking; Your stay
hotel: hotel, Hotel, place, accommodation | stadium | which hotel is booked; what is the hotel called; where do we stay; which hotel did we book
name: guest, name, booked for, Name, guest name | person | who is the booking for; in whose name is the booking; for whom is the room; who is the guest
check-in: check-in, arrival, from, Check-in | daydate | when is check-in; when do we arrive; when do we check in; from when is the room booked
check-out: check-out, departure, until, to | daydate | when is check-out; when do we leave; when do we check out; until when do we have the room
room: room, Room, room no. | #100-900 | which room do we have; what is our room number; which room is booked; what room is it
price: total, price, amount, to pay, per night | $ | how much is the room; what does the stay cost; how much do we have to pay; what is the price
reference: reference, booking no., confirmation, ref, code | code | what is the booking number; what's the booking reference; which reference do I give; what is the confirmation code
guests: guests, people, persons, adults | #2-9 | how many people is the booking for; for how many people is it; how many guests are there
breakfast: breakfast, Breakfast | =included/7-10/not included/12 euros/7:00-9:30/8 to 11/extra | when is breakfast; is breakfast included; what about breakfast
cancellation: cancel by, free cancellation until, cancellation | date | until when can we cancel; when is the last day to cancel
# invoice | Invoice; Bill; INVOICE; Your invoice; Order confirmation; Statement
number: invoice no., Invoice number, no., number, invoice | code | what is the invoice number; which number does the invoice have; what's the number of the invoice
customer: customer, to, bill to, client, customer name | company | who is the invoice for; who is the customer; to whom is the bill
supplier: from, seller, issued by, vendor | company | who sent the invoice; who is the invoice from; who wants the money
date: date, issued, invoice date, Date | date | from when is the invoice; what is the date of the invoice; when was the invoice written
due: due, due date, pay by, payable until | date | when is the invoice due; until when do I have to pay; when must the bill be paid; by when should it be paid
total: total, amount, Total, sum, amount due, to pay | $ | how much is the invoice; what is the total; how much do I have to pay; what does it come to; what's the amount
tax: VAT, tax, Tax, incl. tax | $ | how much tax is on the bill; how much is the VAT; what is the tax
account: account, IBAN, pay to | code | to which account do I pay; what is the account number; where do I send the money
order: order, order no., PO | code | what is the order number; which order is the invoice for
# flight ticket | Boarding pass; Your flight; Ticket; Flight details; Itinerary
flight: flight, Flight, flight no. | flight | which flight do I have; what is the flight number; which flight is it
passenger: passenger, name, Name, traveller | person | who is flying; whose ticket is it; who is the passenger
origin: from, origin, From | town | from where does the flight leave; where do I fly from; where do we start
destination: to, destination, To | town | where does the flight go; where do I fly to; what is the destination
gate: gate, Gate | gatecode | which gate is it; which gate do I go to; what is the gate; from which gate do I leave
seat: seat, Seat | seatcode | where do I sit; which seat do I have; what is my seat; what's my seat number
boarding: boarding, boarding time, Boarding, board at | @ | when does boarding start; when do we board; at what time is boarding
departure: departs, departure, dep. | @ | when does the plane leave; at what time do we fly; when is take-off; what time is the flight
terminal: terminal, Terminal | #1-9 | which terminal do I need; what terminal is it; from which terminal do we leave
luggage: baggage, luggage, bags | =1 x 23 kg/2 x 23 kg/none/hand luggage/20 kg/1 bag/32 kg | how much luggage can I take; what about baggage; how many bags are allowed
# database settings | config; Database; .env; settings.ini; [database]; Connection; database.yml
host: host, DB_HOST, hostname, server | hostname | what is the database host; which host is the database on; where does the database run; which server do we connect to
port: port, DB_PORT | #1024-9999 | which port does the database use; what port is it; on which port is the database
user: user, username, DB_USER, login | login | which user does the database have; as who do we log in to the database; what is the database user
password: password, DB_PASSWORD, pass, pw | password | what is the database password; how do I log in to the database
database: database, name, DB_NAME, dbname, schema | word | what is the database called; which database do we use; what is the name of the database
timeout: timeout, connect_timeout, TIMEOUT | #2-600 | what is the timeout; how long is the timeout; after how many seconds does it time out
pool: pool_size, max_connections, POOL_SIZE, connections | #2-200 | how big is the pool; how many connections are allowed; what is the pool size
# server settings | config.yaml; Settings; server.conf; app.ini; [server]; application.properties; Config
host: host, bind, listen, address, HOST | ip | which address does the server listen on; what is the host; where does the server listen
port: port, PORT, listen_port, http_port | #1024-9999 | which port does the server use; what port does it listen on; what's the port; on which port is the app
workers: workers, threads, processes, WORKERS, num_workers | #2-64 | how many workers are there; how many threads does the server use; what is the number of workers
log level: log_level, loglevel, LOG_LEVEL, level | =debug/info/warning/error/trace/silent | what is the log level; how much does it log; which log level is set
cache: cache_size, cache, CACHE, cache_mb | =128MB/256MB/512MB/1GB/2GB/64MB/4GB | how big is the cache; what is the cache size; how much cache is there
directory: data_dir, path, root, DATA_DIR, folder | word | where is the data; what is the data directory
region: region, zone, REGION | =eu-west-1/us-east-2/ap-south-1/eu-north-1/us-west-2/sa-east-1 | in which region are we; what is the region; which region is set
secret: secret, api_key, token, API_KEY, key | password | what is the API key; which token do we use; what's the secret
retries: retries, max_retries, RETRIES, attempts | #2-40 | how many retries are there; how often does it retry; what is the number of attempts
version: version, release, VERSION | version | which version is it; what version does the app have; which release is that
# training settings | Hyperparameters; train.yaml; Training run; Run settings; Model card
learning rate: lr, learning_rate, learning rate | =0.001/3e-4/1e-5/0.01/5e-5/0.0002/2e-3 | what is the learning rate; how high is the learning rate; which learning rate did we use
batch size: batch_size, batch, batch size | =16/32/64/128/256/512/1024/48 | what is the batch size; how big are the batches; what batch size was it
epochs: epochs, num_epochs, passes | #2-400 | how many epochs did it run; how many epochs are there; for how many epochs do we train
optimizer: optimizer, optim | =adam/adamw/sgd/muon/lion/adafactor/rmsprop | which optimizer do we use; what is the optimizer
layers: layers, num_layers, depth | #2-96 | how many layers does the model have; how deep is the model
dataset: dataset, data, corpus | word | on which data was it trained; what is the dataset; which dataset do we use
loss: val_loss, loss, final loss | =0.42/1.73/2.31/0.88/3.05/0.571/1.204 | what loss did it reach; what was the final loss; how low is the loss
seed: seed, random_seed | #2-9999 | what is the seed; which seed was used
# profile | Profile; Member; Customer record; About the patient; Employee record; ID card; Registration; Application
name: name, Name, full name, customer | person | what is the name; who is it; what's the name on the form; who is this about
born: born, date of birth, DOB, birthday | date | what is the date of birth; when was this person born; when is the birthday
address: address, street, Address | address | what is the address; where does this person live; which address is given
phone: phone, tel, mobile, Phone | phone | what is the phone number; which number is given; how can I call this person
email: email, e-mail, mail | mail | what is the email; which mail address is given; what's the email address
job: job, occupation, profession | job | what is the occupation; what does this person do; which job is given
member: member no., ID, customer no., patient no. | code | what is the member number; which ID does this person have; what's the customer number
since: since, member since, joined | year | since when is this person a member; when did this person join
allergy: allergies, allergy, allergic to | food | what is the allergy; which allergy is noted
doctor: doctor, GP, physician, family doctor | person | who is the doctor; which doctor is noted; what's the name of the doctor
height: height, Height | =1.62 m/178 cm/5'9"/1.85 m/169 cm/193 cm | how tall is this person; what height is given
# parcel | Shipment; Delivery note; Parcel; Tracking; Your delivery; Shipping label
sender: sender, from, From, shipper | company | who sent the parcel; who is the sender; where does the parcel come from
recipient: to, recipient, deliver to, addressee | person | who gets the parcel; who is the recipient; for whom is the parcel
tracking: tracking no., tracking number, tracking, code | code | what is the tracking number; which tracking number does the parcel have; how do I track the parcel
weight: weight, Weight | weight | how heavy is the parcel; how much does the parcel weigh; what is the weight of the parcel
arrival: expected, ETA, arrives, delivery date, delivery | daydate | when does the parcel come; when will the parcel arrive; when is the delivery
status: status, Status, state | =in transit/delivered/at customs/at the depot/on the van/returned to sender/label created | where is the parcel; what is the status of the delivery; what happened to the parcel
address: address, ship to, Address | address | where does the parcel go; to which address is it delivered; what is the delivery address
contents: contents, content, inside | phrase | what is in the parcel; what does the parcel contain
# event | Invitation; Event; You are invited; Party; Flyer; Save the date; Workshop; Course
what: what, event, title, Event | event | what is the invitation for; what is the event
date: date, when, day, Date, When | daydate | when is the event; on what date is it; which day is it on; when is it
time: time, starts, start, doors, Time | @ | what time does it start; at what time is it; when does the event begin; when do the doors open
place: place, where, venue, location, Where | stadium | where is the event; where does it take place; what is the venue; where is it
price: price, tickets, entry, fee, admission | $ | how much is entry; what does a ticket cost; how much does it cost; what is the price
dress: dress code, wear, Dress | =black tie/casual/white/costume/smart casual/sportswear/all in green/formal | what should I wear; what is the dress code; what do we have to wear
bring: bring, please bring, Bring | food | what should I bring; what do we have to bring
contact: contact, RSVP, RSVP to, organiser | given | who do I reply to; who is the contact; who organises it; to whom do I RSVP
seats: seats, places, spots, max. people | #5-400 | how many places are there; how many people can come; how many seats are there
# wifi card | Welcome; House rules; Guest info; WiFi; Notice; Holiday flat; Key facts; Info sheet
network: network, SSID, wifi, WiFi, wifi name | word | what is the wifi called; which network is it; what's the name of the wifi
password: password, wifi password, key, wifi key, pw | password | what is the wifi password; what's the wifi key; how do I get online; wifi password
door code: door code, door, entry code, front door | #1000-9999 | what is the door code; how do I open the door; which code opens the door; how do I get in
checkout: check-out, checkout, leave by, out by | @ | until when do we have to leave; when is check-out; by what time do we have to be out
bins: bins, rubbish, trash, waste | day | when do the bins go out; when is rubbish day; which day is the rubbish collected
host: host, contact, landlord, owner | given | who is the host; who do I call; who owns the flat
phone: phone, emergency, host's number, tel | phone | what number do I call; what is the emergency number; what's the number of the host
parking: parking, parking space, car | gatecode | where can I park; which parking space do we have; where do I put the car
heating: heating, thermostat, temperature | degrees | what is the heating set to; how warm is the flat; what temperature is the thermostat
quiet: quiet hours, quiet, silence | =22-7/10 pm to 8 am/after 22:00/23-6/21:30-7 | when do we have to be quiet; when are quiet hours
key: key, spare key, keys | =under the mat/in the lockbox/with the neighbour/in the drawer/behind the pot/on the hook | where is the key; where do I find the spare key; where are the keys
# product | Product sheet; Specification; Data sheet; For sale; Specs; Listing; Ad; Details
name: model, product, name, item | word | what is the product called; which model is it; what is for sale
price: price, asking price, Price, costs | $ | how much is it; what is the price; what does it cost; how much do they want for it
weight: weight, Weight | weight | how heavy is it; how much does it weigh; what does it weigh
size: size, dimensions, width | =40 x 60 cm/120 cm/2 m/15 inches/90 x 200 cm/13 x 18 cm/1.4 m | how big is it; what are the dimensions; what size is it
colour: colour, color, Colour | colour | what colour is it; which colour does it have; what color does it come in
battery: battery, battery life, runtime | =8 hours/20 h/5000 mAh/3 days/12 hours/2 x AA/40 h | how long does the battery last; which battery does it have
warranty: warranty, guarantee | =2 years/12 months/5 years/none/90 days/6 months | how long is the warranty; how many years of warranty are there
material: material, made of | material | what is it made of; which material is it
origin: made in, origin, from | country | where is it made; which country does it come from; where does it come from
power: power, consumption, watts | =40 W/1200 W/65 W/2 kW/900 W/7 W/15 W | how much power does it need; how many watts does it have
# incident | Incident; Alert; Crash report; Error report; Outage report; Ticket
service: service, app, component, system | service | which service was affected; what broke; which system had the problem
start: started, start, since, began, from | @ | when did it start; when did the problem begin; since when is it down
end: ended, resolved, fixed at, until | @ | when was it over; when was it fixed; until when did it last
cause: cause, root cause, reason, why | =full disk/expired certificate/bad deploy/power cut/memory leak/DNS change/typo in config/broken cable/wrong password/too many requests | why did it happen; what was the cause; what went wrong; what was the reason
error: error, code, error code, message | =E1042/502/out of memory/connection refused/0x8007/timeout/503/segfault/404/permission denied/ENOSPC | what was the error; which error code was it; what did the error say
severity: severity, level, priority | =high/low/critical/P1/P2/minor/major | how bad was it; how severe was it; what was the severity
reporter: reported by, found by, reporter | given | who reported it; who found the problem; who noticed it
fix: fix, action, solution, resolved by | =restart/rollback/new certificate/bigger disk/config change/cable replaced/cache cleared/patch | how was it fixed; what was the solution; what did they do about it
owner: owner, assigned to, on it, engineer | given | who fixed it; who takes care of it; who is on it
users: users affected, affected, customers | #2-9000 | how many users were affected; how many people noticed
# trip | Trip; Trip plan; Travel plan; Holiday; Excursion; Hike
destination: destination, to, where, Where | town | where do we go; what is the destination; where is the trip to
start: leaving, departure, start, we leave | daydate | when do we leave; when does the trip start; on what day do we go
back: back, return, home, we return | daydate | when are we back; when do we come home; when do we return
transport: by, transport, how, travel by | vehicle | how do we get there; what do we take to get there; how do we travel
meeting point: meet at, meeting point, meet | stadium | where do we meet; what is the meeting point
cost: cost, price, per person, costs | $ | how much is the trip; what does it cost; how much does everybody pay
leader: guide, led by, leader, organiser | given | who leads the trip; who is our guide; who organises it
bring: bring, pack, don't forget | =sun cream/rain jacket/good shoes/packed lunch/sleeping bag/passport/swimsuit/water bottle/torch | what should I bring; what do we have to pack; what must I not forget
distance: distance, km, length | =12 km/8 miles/25 km/340 km/5 km/90 miles | how far is it; how long is the way; what is the distance
# match | Match report; Game; Scoreboard; Result; Final; Match
home: home, home team, team 1 | word | who played at home; which team is at home
away: away, guest, visitors, team 2 | word | who was the guest; which team played away; who were the visitors
score: score, result, final score, Result | =3-1/2:2/0-4/21-17/88-79/5:0/1-0/3:2/101-96/6-4 | what was the score; how did the game end; what is the result; how did they play
scorer: goals, scorer, scored by, MVP | given | who scored; who was the best player; who got the goal
referee: referee, umpire, ref | surname | who was the referee; who refereed
crowd: attendance, crowd, spectators | #40-60000 | how many people watched; how many spectators were there; what was the attendance
"""


def _parse() -> list[tuple[str, list[str], list[tuple[str, list[str], str, tuple[str, ...]]]]]:
    forms = []
    for block in _TEXT.strip().removeprefix("# ").split("\n# "):
        head, *lines = block.splitlines()
        name, titles = (part.strip() for part in head.split("|"))
        fields = []
        for line in lines:
            label, rest = line.split(":", 1)
            labels, kind, asks = (part.strip() for part in rest.split(" | "))
            fields.append(
                (label, [x.strip() for x in labels.split(",")], kind, tuple(x.strip() for x in asks.split(";")))
            )
        forms.append((name, [t.strip() for t in titles.split(";")], fields))
    return forms


FORMS = _parse()


def form(grammar: Grammar) -> list[Line]:
    """A document of one kind, in one of the usual formats."""
    rng = grammar.rng
    name, titles, fields = pick(rng, FORMS)
    chosen = [field for field in fields if rng.random() < 0.6] or fields[:2]
    if rng.random() < 0.3:
        rng.shuffle(chosen)
    computer = "settings" in name
    style = rng.random()
    bullet = pick(rng, ["", "", "", "- ", "* "])
    equals = (
        pick(rng, ["=", " = ", ": ", "="])
        if computer
        else pick(rng, [": ", ": ", ": ", " - ", " = ", ":  ", ":\t", " ", ". . . ", " | "])
    )
    lines: list[Line] = []
    if rng.random() < 0.6:
        lines.append(
            (
                pick(rng, ["{}", "{}:", "# {}", "*** {} ***", "{}", "{}\n---"])
                .format(pick(rng, titles))
                .split("\n")[0],
                [],
            )
        )
    is_json = style < (0.25 if computer else 0.1)
    if is_json:
        lines.append(("{", []))
    inline = not is_json and style > 0.86
    if inline:
        bullet = ""
    parts: list[str] = []
    asked: list[Question] = []
    for number, (label, labels, kind, asks) in enumerate(chosen):
        shown = pick(rng, labels)
        value = cell(rng, grammar.split, kind, rng.random())
        forms = of_split(asks, f"{name} {label}", grammar.wording.split)
        plain = shown if shown.isalpha() and not shown.isupper() else label
        generic = pick(
            rng,
            [
                f"what is the {plain}",
                f"what's the {plain}",
                f"what does it say for {plain}",
                f"what is the {plain} of the {name}",
                f"what's the {name}'s {plain}",
            ],
        )
        question = Question(
            f"{label}|form",
            value,
            [*some(rng, forms, 4), generic],
            [f"what the {plain} is"],
            [plain, f"{name} {plain}", f"the {plain}"],
            [],
            (f"{label}|{name}", f"{label}|"),
        )
        if is_json:
            comma = "" if number == len(chosen) - 1 else ","
            key = re.sub(r"[ .-]+", "_", shown.strip(".")).lower()
            text = f'  "{key}": {json.dumps(int(value) if value.isdigit() and value[0] != "0" else value, ensure_ascii=False)}{comma}'
        elif equals == " | ":
            text = f"| {shown} | {value} |"
        else:
            text = f"{bullet}{shown if computer or inline else capital(shown)}{equals}{value}"
        if inline:
            parts.append(text)
            asked.append(question)
        else:
            lines.append((text, [question]))
    if is_json:
        lines.append(("}", []))
    if inline:
        lines.append((pick(rng, [", ", "; ", " | ", ". "]).join(parts), asked))
    return lines


def receipt(grammar: Grammar) -> list[Line]:
    """A till receipt: what was bought, how much, the total, the change."""
    rng, split = grammar.rng, grammar.split
    shop = pick(
        rng,
        [
            names.word(rng, split) + " Market",
            cell(rng, split, "shop").upper(),
            names.word(rng, split),
            "RECEIPT",
            "Receipt",
            "Bill",
        ],
    )
    lines: list[Line] = [(shop, [])]
    kind = pick(rng, ["thing", "food", "dish"])
    bought: list[str] = []
    for _ in range(2 + int(rng.random() * 5)):
        item = cell(rng, split, kind)
        if item in bought:
            continue
        bought.append(item)
        count, price = int(rng.random() * 9) + 2, f"{int(rng.random() * 60) + 1}.{int(rng.random() * 100):02d}"
        form = pick(
            rng,
            [
                "{n} x {i} {p}",
                "{n} {i} {p}",
                "{i} x{n} {p}",
                "{i} {p}",
                "{i}   {p}",
                "{i}: {p}",
                "{i} .... {p}",
                "{n}x {i} @ {p}",
            ],
        )
        asks = [Question(f"price|{item}", price, some(rng, [f"how much was the {item}", f"what did the {item} cost", f"how much did I pay for the {item}", f"how much is the {item}", f"what was the price of the {item}", f"how much did we spend on {item}", f"how much did the {item} cost"], 4),
                         [f"how much the {item} was"], [f"{item} price", f"price of the {item}", item])]  # fmt: skip
        if "{n}" in form:
            asks.append(
                Question(
                    f"quantity|{item}",
                    str(count),
                    [
                        f"how many {item}s did I buy",
                        f"how many {item} were bought",
                        f"how many {item} are on the receipt",
                        f"how many {item}s did we get",
                    ],
                    [],
                    [f"number of {item}"],
                )
            )
        lines.append((form.format(n=count, i=item, p=price), asks))
    total = f"{int(rng.random() * 300) + 20}.{int(rng.random() * 100):02d}"
    for chance, labels, value, asks in (
        (0.25, "Subtotal|Sub-total", f"{int(rng.random() * 200) + 15}.{int(rng.random() * 100):02d}", "what is the subtotal|how much is it without tax|what was the subtotal"),
        (0.35, "Tax|VAT|incl. VAT|Sales tax", f"{int(rng.random() * 20) + 1}.{int(rng.random() * 100):02d}", "how much tax did I pay|how much was the tax|how much VAT is on the receipt|what is the tax"),
        (0.95, "Total|TOTAL|Sum|To pay|Total EUR|total|Grand total", total, "what is the total|what was the total|how much did I pay in total|how much is it all together|what's the sum|how much did it come to|how much did I spend|what's the total|how much was everything"),
        (0.3, "Cash|Paid|Given|Card", f"{int(rng.random() * 300) + 320}.00", "how much did I give|how much cash did I pay with|how much was paid"),
        (0.3, "Change|change|Back", f"{int(rng.random() * 20)}.{int(rng.random() * 100):02d}", "how much change did I get|what was the change|how much did I get back"),
        (0.3, "Date|date|Printed", cell(rng, split, "date"), "when was the receipt printed|what is the date of the receipt|when did I buy this|when was I there"),
        (0.3, "Cashier|Served by|You were served by", cell(rng, split, "given"), "who was the cashier|who served me|what was the cashier called|who was at the till"),
        (0.2, "Table|table", str(int(rng.random() * 40) + 1), "which table was it|at which table did we sit|what was our table number"),
        (0.2, "Tip|tip|Service", f"{int(rng.random() * 20) + 1}.00", "how much was the tip|how big was the tip|what did we tip"),
    ):  # fmt: skip
        if rng.random() < chance:
            label = pick(rng, labels.split("|"))
            key = labels.split("|", 1)[0].lower()
            lines.append(
                (
                    f"{label}{pick(rng, [' ', ': ', '   ', ' = '])}{value}",
                    [
                        Question(
                            f"{key}|receipt",
                            value,
                            some(rng, asks.split("|"), 4),
                            [],
                            [f"the {key}", key, f"receipt {key}"],
                            [],
                            (f"{key}|",),
                        )
                    ],
                )
            )
    return lines


def recipe(grammar: Grammar) -> list[Line]:
    """Ingredients with amounts, then the oven."""
    rng, split = grammar.rng, grammar.split
    dish = cell(rng, split, "dish")
    lines: list[Line] = [
        (pick(rng, ["{}", "Recipe: {}", "{}:", "# {}", "{} (serves 4)", "For the {}:"]).format(capital(dish)), [])
    ]
    form, used = (
        pick(rng, ["{a} {i}", "{a} {i}", "- {a} {i}", "{i}: {a}", "{i} {a}", "* {a} of {i}", "{i} ({a})"]),
        set(),
    )
    for _ in range(3 + int(rng.random() * 5)):
        item, amount = cell(rng, split, "food"), cell(rng, split, "recipe")
        if item in used:
            continue
        used.add(item)
        asks = [
            f"how much {item} do I need",
            f"how many {item} do I need",
            f"how much {item} goes in",
            f"how much {item} is in the {dish}",
            f"how much {item} should I take",
            f"what amount of {item} is it",
            f"how much {item} do I need for the {dish}",
        ]
        asks = [agree(ask, item) for ask in asks]
        lines.append(
            (
                form.format(a=amount, i=item),
                [
                    Question(
                        f"amount|{item}",
                        amount,
                        some(rng, asks, 4),
                        [f"how much {item} I need"],
                        [f"how much {item}", f"amount of {item}", item],
                    )
                ],
            )
        )
    for chance, text, value, asks in (
        (0.6, "Bake for {v}|Bake {v}|In the oven for {v}|Cook {v}|Leave it in the oven for {v}|Baking time: {v}", f"{int(rng.random() * 80) + 10} minutes", "how long does it bake|how long do I bake it|how long is it in the oven|for how long do I cook it|what is the baking time"),
        (0.6, "Heat the oven to {v}|Oven at {v}|Oven: {v}|Preheat the oven to {v}", f"{int(rng.random() * 16) * 10 + 120} {pick(rng, ['degrees', '°C', 'C'])}", "how hot is the oven|what temperature is the oven|how hot should the oven be|what do I set the oven to"),
        (0.4, "Serves {v}|For {v} people|Makes {v} portions|Portions: {v}", str(int(rng.random() * 20) + 2), "how many people is it for|how many portions is it|how many does it serve|for how many people is the recipe"),
        (0.3, "Let it rest for {v}|Chill for {v}|Rest: {v}", f"{int(rng.random() * 20) + 2} hours", "how long does it have to rest|how long do I chill it|how long does it rest"),
        (0.3, "From {v}'s kitchen|Recipe by {v}|Source: {v}", cell(rng, split, "given"), "who is the recipe from|whose recipe is it|who gave me the recipe"),
    ):  # fmt: skip
        if rng.random() < chance:
            lines.append(
                (
                    pick(rng, text.split("|")).format(v=value) + pick(rng, [".", ""]),
                    [Question(f"{asks.split('|')[0]}|", value, asks.split("|"), [], [])],
                )
            )
    return lines
