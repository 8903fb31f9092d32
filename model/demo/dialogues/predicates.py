"""What a sentence can say of somebody or something: verbs with their frames, and how each is asked for.

One predicate a line:   subjects | verb | frame | wh-words | noun phrases that name the value
  subjects  kinds of noun phrases: person, thing, event, org, bare (an event without an article), animal
  verb      base form; "be" and "have" are inflected; a particle may follow ("start out"); past tense in parentheses if irregular
  frame     what follows the verb, with one {type of value}
  wh-words  what asks for the value; "which X" makes "which X does S verb prep?"
  nouns     names of the value, for "the N of S" and for descriptions in questions of two steps; may be empty
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Predicate:
    subjects: tuple[str, ...]
    verb: str
    past: str
    before: str  # of the frame, up to the value
    value_type: str
    after: str
    wh: tuple[str, ...]
    nouns: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.verb} {self.before}{{{self.value_type}}}{self.after}"


_LINES = """
person animal | live | in {town} | where; which town; which city | town; home town; city
person | live | at {address} | where; which address | address; home address
person | live | on {floor} | where; which floor | floor
person | live | with {person} | who | flatmate
person | come (came) | from {country} | where; which country | home country; country of origin
person thing | come (came) | from {town} | where; which town | town of origin
person | be | from {town} | where; which town | home town
person animal | be | {count} years old | how old | age
person | be | born in {year} | when; which year | year of birth; birth year
person | be | born on {date} | when; which day | birthday; date of birth
person | be | born in {town} | where; which town | birthplace
person | work | at {company} | where; which company | employer; company
person | work | for {company} | who; which company | employer
person | work | as a {job} | what | job; profession
person | work | in {room} | where; which room | office; room
person | work | on {phrase} | what | project; topic
person | study (studied) | {subject} | what; which subject | subject; major
person | study (studied) | in {town} | where; which city | university town
person | teach (taught) | {subject} | what; which subject | subject
person | play (played) | the {instrument} | what; which instrument | instrument
person | play (played) | {sport} | what; which sport | sport
person | play | for {team} | who; which team | team
person | speak (spoke) | {language} | what; which language | language
person | learn | {language} | what; which language | new language
person animal | like | {food} | what | favourite food
person animal | love | {food} | what | favourite dish
person animal | hate | {food} | what | least favourite food
person | prefer | {food} | what | preference
person animal | eat (ate) | {food} | what | meal
person animal | be | allergic to {food} | what | allergy
person | be | afraid of {animals} | what | fear; phobia
person | collect | {things} | what | collection
person | drive (drove) | a {phrase} | what; which car | car
person | ride (rode) | a {phrase} | what | bike
person | wear (wore) | size {count} | what size; which size | shoe size; size
person animal | weigh | {weight} | how much | weight
person thing | be | {length} tall | how tall | height
thing | be | {length} long | how long | length
thing | be | {length} wide | how wide | width
thing | be | {length} deep | how deep | depth
person | earn | {price} | how much | salary; pay
person | owe | me {price} | how much | debt
person | pay (paid) | {price} | how much | payment
person | marry (married) | {person} | who | husband or wife; spouse
person | report | to {person} | who | boss; supervisor
person | sit (sat) | in {seat} | where; which seat | seat
person | stay (stayed) | at {org} | where; which hotel | hotel
person | arrive | at {time} | when; what time | arrival time; time of arrival
person | arrive | on {day} | when; which day; what day | day of arrival
person | leave (left) | at {time} | when; what time | departure time
person | leave (left) | for {town} | where | destination
person | fly (flew) | to {town} | where; which city | destination
person | travel | by {vehicle} | how | means of transport
person | move | to {town} | where; which city | new home
person | move | in {month} | when; which month | moving month
person | retire | in {year} | when; which year | year of retirement
person | get (got) up | at {time} | when; what time | wake-up time
person | go (went) to bed | at {time} | when; what time | bedtime
person | train | on {day}s | when; which day | training day
person | vote | for {phrase} | what | vote
person | use | {phrase} | what | tool
person | need | {phrase} | what | need
person | want | {phrase} | what | wish
person | order | {food} | what | order
person | bring (brought) | {food} | what | contribution
person | cook | {food} | what | dish
person | sing (sang) | in {team} | where; which choir | choir
person | admire | {person} | who | idol
person | call | his dog {word} | what | name of the dog
person | carry (carried) | {phrase} | what | luggage
person | drink (drank) | {drink} | what | favourite drink
person | listen | to {title} | what | favourite song
person | read (read) | {title} | what; which book | book
person | watch | {title} | what; which film | film
person | take (took) | the {ordinal} train | which train; what | train
person | park | on {floor} | where; which floor | parking level
person | meet (met) | {person} | who | contact
person | coach | {team} | who; which team | team
person | run (ran) | {org} | what | shop; business
person | own | {phrase} | what | property
thing | cost (cost) | {price} | how much; what | price; cost
thing event bare org | cost (cost) | {price} | how much | price; fee
thing | weigh | {weight} | how much | weight
thing | belong | to {person} | who | owner
thing | be | {colour} | what colour; which colour | colour
thing | be | made of {material} | what | material
thing | be | made in {town} | where | place of manufacture
thing | be | due on {date} | when; which day | due date
thing | be | due back on {day} | when; which day | return day
thing | expire | on {date} | when; which day | expiry date
thing | expire | in {year} | when; which year | year of expiry
thing | open | with {code} | how; what | code
thing | contain | {phrase} | what | content
thing | hold (held) | {count} litres | how many litres; how much | capacity
thing | run (ran) | on {material} | what | fuel
thing | use | {count} watts | how many watts | power
thing | smell | of {food} | what | smell
thing | taste | of {food} | what | taste
thing | come (came) | with {phrase} | what | accessory
thing | last | {duration} | how long | life
thing | arrive | on {day} | when; which day | delivery day
thing | arrive | at {time} | when; what time | delivery time
thing | go (went) out | on {day} | when; which day | collection day
thing | need | {phrase} | what | requirement
thing | point | to {place} | where | direction
thing | have | {count} pages | how many pages | number of pages
thing | have | {count} buttons | how many buttons | number of buttons
thing org | have | the number {code} | what number; which number | number
person | have | {count} children | how many children | number of children
person | have | {count} cats | how many cats | number of cats
person | have | a {animal} | what pet; which pet; what | pet
person | have | the key to {place} | what | key
person | have | an appointment at {time} | when; what time | appointment
org | have | {count} rooms | how many rooms | number of rooms
org | have | {count} employees | how many employees | number of employees
org | open | at {time} | when; what time | opening time; opening hour
org | close | at {time} | when; what time | closing time
org | be | closed on {day}s | when; which day | closing day; day off
org | be | in {town} | where; which town | town; location
org | be | on {street} | where; which street | street
org | be | at {address} | where; which address | address
org | be | next to {place} | where | location
org | be | founded in {year} | when; which year | founding year
org | be | founded by {person} | who | founder
org | belong | to {person} | who | owner
org | be | run by {person} | who | manager
org | sell (sold) | {things} | what | goods
org | serve | {food} | what | speciality
org | make (made) | {things} | what | product
org | charge | {price} | how much; what | fee; charge
org | employ | {count} people | how many people | staff
org | move | to {town} | where; which town | new location
org | deliver | on {day}s | when; which day | delivery day
event bare | start | at {time} | when; what time | start time; starting time
event bare | begin (began) | at {time} | when; what time | beginning
event bare | end | at {time} | when; what time | end; end time
event bare | be | at {time} | when; what time | time
event bare | be | on {day} | when; which day; what day | day
event bare | be | on {date} | when; which day; what date | date
event bare | be | in {room} | where; which room | room
event bare | be | in {place} | where | place; venue
event bare | take (took) place | in {place} | where | venue; location
event bare | take (took) place | on {date} | when; what date | date
event bare | take (took) place | at {org} | where | venue
event bare | last | {duration} | how long | duration
event bare | be | over at {time} | when; what time | end
event | be | hosted by {person} | who | host
event | be | organised by {person} | who | organiser
event | be | about {phrase} | what | topic; subject
event | be | with {person} | who | partner
event | be | cancelled because of {phrase} | why | reason
event | have | {count} guests | how many guests | number of guests
event | leave (left) | from {gate} | where; which gate; which platform | gate; platform
event | leave (left) | at {time} | when; what time | departure; departure time
event | arrive | at {time} | when; what time | arrival
event | go (went) | to {town} | where; which town | destination
event | board | at {time} | when; what time | boarding time
animal | sleep (slept) | in {place} | where | sleeping place
animal | belong | to {person} | who | owner
animal | weigh | {weight} | how much | weight
animal | see (saw) the vet | on {date} | when | vet's appointment
animal | be | {colour} | what colour; which colour | colour
"""


def _parse(line: str) -> Predicate:
    subjects, verb, frame, wh, nouns = (part.strip() for part in line.split("|"))
    past = ""
    if "(" in verb:
        at, end = verb.index("("), verb.index(")")
        past = verb[at + 1 : end] + verb[end + 1 :]
        verb = verb[:at].strip() + verb[end + 1 :]
    before, rest = frame.split("{")
    value_type, after = rest.split("}")
    return Predicate(
        tuple(subjects.split()), verb, past or _past(verb), before, value_type, after,
        tuple(w.strip() for w in wh.split(";")), tuple(n.strip() for n in nouns.split(";") if n.strip()),
    )  # fmt: skip


def _past(verb: str) -> str:
    head, _, rest = verb.partition(" ")
    if head in ("be", "have"):
        return verb
    if head.endswith("e"):
        head += "d"
    elif head.endswith("y") and head[-2] not in "aeiou":
        head = head[:-1] + "ied"
    else:
        head += "ed"
    return f"{head} {rest}".strip()


PREDICATES = [_parse(line) for line in _LINES.strip().splitlines()]
