"""What a sentence can say of somebody or something: verbs with their frames, and how each is asked for.

One predicate a line:   subjects | verb | frame | wh-words | noun phrases that name the value
  subjects  kinds of noun phrases: person, thing, event, org, bare (an event without an article), animal
  verb      base form; "be" and "have" are inflected; a particle may follow ("start out"); past tense in parentheses if irregular
  frame     what follows the verb, with one {type of value}
  wh-words  what asks for the value; "which X" makes "which X does S verb prep?"
  nouns     names of the value, for "the N of S" and for descriptions in questions of two steps; may be empty
Two more columns may follow:
  questions further questions, by synonyms: {s} the subject, {do} and {be} verbs that agree with it
  changes   statements after which the {new} value holds
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
    questions: tuple[str, ...] = ()  # further ones, with {s}, {do} and {be}
    changes: tuple[str, ...] = ()  # further statements of a change, with {s} and {{new}}

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
animal | see (saw) the vet | on {date} | when | vet appointment
animal | be | {colour} | what colour; which colour | colour
person animal | reside | in {town} | where; which town | town; residence | where is {s} at home; where {be} {s} based | {s} moved to {new}
person | grow (grew) up | in {town} | where; which town | childhood town; home town | where did {s} spend the childhood
person | be | based in {town} | where; which city | base; city | where {do} {s} live; where {be} {s} located | {s} relocated to {new}
person | rent | a flat in {town} | where | rented flat | | {s} found a flat in {new}
person | commute | to {town} | where; which town | commute | to which town {do} {s} travel for work
person | originate | from {country} | where; which country | origin | what {be} {s}'s nationality
person | hold (held) | a passport of {country} | which country | citizenship | what nationality {be} {s}
person | go (went) to school | in {town} | where; which town | school town | where {do} {s} go to school
person | graduate | in {year} | when; which year | graduation year | in which year did {s} finish university
person | graduate | from {org} | where; which university | alma mater | where did {s} study
person | major | in {subject} | what; which subject | major | what {do} {s} study | {s} switched to {new}; {s} changed majors to {new}
person | write (wrote) a thesis | about {phrase} | what | thesis topic | what is the topic of {s}'s thesis | {s} changed the topic to {new}
person | specialise | in {subject} | what; which subject | speciality; field | what field {be} {s} in
person | be | good at {subject} | what | strength | which subject {be} {s} strong in
person | be | bad at {subject} | what | weakness | which subject {be} {s} weak in
person | be | interested in {subject} | what | interest | what interests {s}
person | dream (dreamt) | of {phrase} | what | dream
person | be | famous for {phrase} | what | claim to fame | what {be} {s} known for
person | believe | in {phrase} | what | belief
person | worry (worried) | about {phrase} | what | worry | what {be} {s} worried about
person | complain | about {phrase} | what | complaint | what {be} {s} unhappy with
person | apologise | for {phrase} | what | reason for the apology
person | talk | about {phrase} | what | topic
person | think (thought) | about {phrase} | what | thoughts
person | ask | for {phrase} | what | request | what did {s} request | {s} asked for {new} instead
person | pay (paid) | for {phrase} | what | purchase
person | search | for {phrase} | what | search | what {be} {s} looking for
person | wait | for {person} | who | expected guest | who {be} {s} waiting for
person | wait | at {place} | where | waiting place
person | stand (stood) | at {place} | where | place
person | hide (hid) | in {place} | where | hiding place
person | sleep (slept) | in {room} | where; which room | bedroom | where {do} {s} stay overnight
person | sit (sat) | next to {person} | who | neighbour | who {be} {s} sitting beside; beside whom {do} {s} sit
person | share | a room with {person} | who | roommate | who {be} {s} sharing a room with
person | share | an office with {person} | who | office mate | with whom {do} {s} share an office | {s} moved in with {new}
person | work | with {person} | who | colleague | who {be} {s} working with | {s} teamed up with {new}
person | work | until {time} | when | end of work | until when {do} {s} work; when {do} {s} finish work | {s} has to stay until {new}
person | start | work at {time} | when; what time | start of work | when {do} {s} begin work; what time {do} {s} start | {s} begins at {new} from now on
person | finish | work at {time} | when; what time | end of work | when {be} {s} done | {s} gets off at {new} now
person | have | lunch at {time} | when; what time | lunch break | when {do} {s} eat lunch
person | have | dinner with {person} | who | dinner partner
person | have | a meeting with {person} | who | meeting partner | who {be} {s} meeting
person | have | a meeting in {room} | where; which room | meeting room
person | have | a crush on {person} | who | crush
person | have | a house in {town} | where | house
person | have | a degree in {subject} | what; which subject | degree | what did {s} study
person | have | an account at {company} | where; which bank | bank | what bank {be} {s} with | {s} switched to {new}; {s} opened an account at {new}
person | have | a scar on {place} | where | scar
person | have | a car made by {company} | which company | car maker
person | have | {count} euros in the wallet | how many euros; how much | money
person | have | {count} brothers | how many brothers | number of brothers
person | have | {count} grandchildren | how many grandchildren | number of grandchildren
person | have | {count} days off | how many days off | days off; holidays | how much holiday {do} {s} get | {s} has {new} days off now
person | have | {count} points | how many points | score; points | what is {s}'s score | {s} is up to {new} points
person | have | {count} followers | how many followers | followers; number of followers | | {s} has reached {new} followers
person | have | {count} tickets left | how many tickets | tickets left
person org | have | a budget of {price} | how much | budget | how much money {do} {s} have | the budget of {s} was cut to {new}
person | have | blood type {code} | which blood type | blood type
person | have | a temperature of {temperature} | what | temperature; fever | what is {s}'s temperature | {s}'s fever went down to {new}
person animal | be | called {name} | what | name | what name {do} {s} go by; what's the name of {s} | {s} goes by {new} now
person | be | known as {word} | what | nickname; alias | how {be} {s} known
person | be | married to {person} | who | husband or wife; spouse | who is the spouse of {s}; who did {s} marry | {s} remarried, to {new}
person | be | engaged to {person} | who | fiancé or fiancée | who is {s} going to marry
person | be | related to {person} | who | relative
person | be | in love with {person} | who | love
person | be | friends with {person} | who | friend | who is a friend of {s}
person | be | taller than {person} | who | shorter one
person | be | older than {person} | who | younger one
person | be | in charge of {phrase} | what | responsibility | what {be} {s} responsible for | {s} was put in charge of {new}
person | be | responsible for {phrase} | what | responsibility | what {be} {s} in charge of; what does {s} take care of | {s} takes care of {new} now
person | be | tired of {phrase} | what | annoyance
person | be | fond of {food} | what | favourite food | what {do} {s} like
person | be | addicted to {food} | what | addiction | what can't {s} live without
person | be | proud of {phrase} | what | pride
person | be | jealous of {person} | who | rival
person | be | angry with {person} | who | quarrel | who {be} {s} mad at
person | be | named after {person} | who | namesake | whose name {do} {s} have
person | be | out until {time} | when | return | until when {be} {s} away; when {be} {s} back | {s} won't be back before {new}
person | be | away until {date} | when | return date | when {do} {s} come back; until when {be} {s} away | {s} stays away until {new}
person | be | free on {day}s | when; which day | free day | which day {do} {s} have off | {s} has {new}s off now
person | be | off on {day}s | when; which day | day off | when {do} {s} not work | {s} swapped and is off on {new}s
person | be | on holiday in {country} | where; which country | holiday destination | where {do} {s} spend the holidays | {s} changed plans and goes to {new}
person | be | in hospital in {town} | where | hospital
person | be | from the {word} family | which family | family
person | be | staying at {org} | where; which hotel | hotel; accommodation | where {do} {s} stay overnight | {s} switched to {new}; {s} moved over to {new}
person | be | staying in {room} | where; which room | room; room number | which room {do} {s} have | {s} was moved to {new}; they gave {s} {new} instead
person | be | on {floor} | where; which floor | floor | on what floor can {s} be found
person | be | at {place} | where | whereabouts | where can {s} be found | {s} went over to {new}; {s} has left for {new}
person | be | out of {food} | what | shortage | what {do} {s} need to buy
person | be | a {job} | what | job; profession; occupation | what {do} {s} do for a living; what job {do} {s} have | {s} retrained and is a {new} now
person | become (became) | a {job} | what | job; profession | what {do} {s} do for a living | {s} gave that up and is a {new} now
person | train | as a {job} | what | training | what {be} {s} learning to be
person | earn money | as a {job} | how | job | what job {do} {s} have
person | vote | for {person} | who | candidate | who got the vote of {s}
person | support | {team} | who; which team | favourite team; team | what team {do} {s} cheer for; who {be} {s} a fan of | {s} is a fan of {new} now
person | cheer | for {team} | who; which team | team | which team {do} {s} support | {s} switched sides to {new}
person | be | a fan of {team} | who; which team | favourite team | what team {do} {s} support
person | be | a member of {org} | what | club; membership | which club {be} {s} in | {s} left and joined {new}
person | join | {org} | what | club | what is {s} a member of
person | play | in {org} | where | venue
person | train | at {org} | where | gym | where {do} {s} work out | {s} changed gyms, to {new}
person | bank | with {company} | who | bank | which bank {do} {s} use | {s} switched banks, to {new}
person | be | insured with {company} | who | insurer; insurance | which insurance {do} {s} have | {s} changed the insurance to {new}
person | subscribe | to {title} | what; which magazine | subscription | what {do} {s} read regularly
person | write (wrote) | for {title} | what | newspaper
person | translate | from {language} | which language | source language
person | sing (sang) | {title} | what; which song | song | what song {do} {s} perform
person | dance | to {title} | what | dance song
person | write (wrote) | {title} | what; which book | book | what is the title of {s}'s book
person | direct | {title} | what; which film | film
person | recommend | {title} | what | recommendation; tip | what did {s} suggest | {s} would rather recommend {new}
person | suggest | {phrase} | what | suggestion; idea | what was the idea of {s}
person | choose (chose) | {phrase} | what | choice | what did {s} pick; what {do} {s} go for | {s} went for {new} in the end
person | invent | {phrase} | what | invention
person | win (won) | {phrase} | what | prize | what prize did {s} get
person | lose (lost) | {phrase} | what | loss | what is {s} missing
person | miss | {person} | who | missed person
person | trust | {person} | who | confidant
person | hate | {animals} | what | dislike | what can {s} not stand
person | keep (kept) | {animals} | what; which animals | animals
person | breed (bred) | {animals} | what; which animals | breed
person | grow (grew) | {food} | what | crop | what {do} {s} have in the garden
person | bake | {food} | what | baking | what {do} {s} make in the oven
person | sell (sold) | {food} | what | goods
person | drink (drank) | {quantity} of water a day | how much | daily amount of water
person | run (ran) | {length} | how far | distance | what distance {do} {s} run | {s} is up to {new}
person | run (ran) a marathon | in {duration} | how long; how fast | marathon time
person | swim (swam) | {count} laps | how many laps | laps | | {s} is up to {new} laps
person | lift | {weight} | how much | record
person | jump | {length} | how far; how high | jump
person | read (read) | {count} pages | how many pages | pages | how far did {s} get
person | know (knew) | {count} words of Welsh | how many words | vocabulary
person | type | {count} words a minute | how many words | typing speed | how fast {do} {s} type
person | spend (spent) | {price} on food | how much | food budget | what {do} {s} pay for food
person | save | {price} a month | how much | savings | how much {do} {s} put aside
person | lend (lent) | me {price} | how much | loan | how much {do} {s} give me
person | donate | {price} | how much | donation
person | get (got) | {price} an hour | how much | hourly wage | what {do} {s} earn | {s} gets {new} an hour now; {s}'s wage went up to {new}
person | ask | for {price} | how much | asking price | how much money {do} {s} want | {s} came down to {new}
person | offer | {price} | how much | offer; bid | what is the bid of {s} | {s} went up to {new}; {s} raised the offer to {new}
person | bet (bet) | {price} | how much | bet
person | come (came) | home at {time} | when; what time | return | when {be} {s} back home | {s} will be late, not before {new}
person | come (came) | by {vehicle} | how | means of transport | what {do} {s} come by; how {be} {s} getting here | {s} takes the {new} instead
person | come (came) | with {person} | who | companion | who {do} {s} bring along
person | go (went) to work | by {vehicle} | how | way to work | how {do} {s} get to work; how {do} {s} commute | {s} takes the {new} to work now
person | go (went) on holiday | in {month} | when; which month | holiday month | | {s} postponed the holiday to {new}
person | go (went) on holiday | to {country} | where; which country | holiday destination | what country {do} {s} visit | {s} booked {new} instead
person | call | at {time} | when; what time | call time | when {be} {s} going to ring | {s} will call at {new} instead
person | call | back on {day} | when; which day | callback day | | {s} will only call on {new}
person | visit | us on {day} | when; which day | visit | when {be} {s} coming to see us | {s} can only come on {new}
person | come (came) | over on {day} | when; which day | visit; day of the visit | when {do} {s} visit us | {s} can't and comes on {new}
person | come (came) | back on {date} | when; which day | return; date of return | when {be} {s} here again; when {do} {s} return | {s} extended the trip until {new}
person | return | on {day} | when; which day | return; day of return | when {be} {s} back | {s} comes back on {new} instead
person | depart | at {time} | when; what time | departure time | when {do} {s} leave | {s} has to go at {new} already
person | check in | at {org} | where; which hotel | hotel | where {be} {s} staying
person | check out | at {time} | when; what time | check-out | when {do} {s} have to leave the room
person | land | at {time} | when; what time | landing time | when {do} {s}'s plane come in; at what time {do} {s} arrive | {s} is late and lands at {new}
person | take (took) | the bus at {time} | when; what time | bus | what bus {do} {s} take | {s} takes the one at {new}
person | change | trains in {town} | where | connection | in which town {do} {s} have to change
person | get (got) off | at {place} | where | stop | which stop is {s}'s
person | start | from {place} | where | starting point
person | park | behind {place} | where | parking spot | where is {s}'s car | {s} moved the car to {new}
person | park | in {place} | where | parking spot | where is the car of {s}
person | teach (taught) | in {room} | where; which room | classroom | which room {be} {s} in | {s} moved to {new}
person | teach (taught) | on {day}s | when; which day | teaching day
person | see (saw) | patients on {day}s | when; which day | consulting day
person | have | yoga on {day}s | when; which day | yoga day
person | have | an exam on {date} | when; which day | exam; exam date | when {be} {s} examined | {s}'s exam was moved to {new}
person | have | a birthday on {date} | when; which day | birthday | when {be} {s} born; when do we celebrate {s}
person | celebrate | in {place} | where | party place
person | move | out on {date} | when; which day | moving day | when {do} {s} leave the flat
person | start | at {company} | where; which company | new employer | where {do} {s} work from now on
person | start | the new job on {date} | when; which day | first day
person | hand | the report to {person} | who | recipient | who gets the report
person | give (gave) | the keys to {person} | who | holder of the keys | who has the keys
person | send (sent) | the letter to {address} | where; which address | address | where did the letter go
person | write (wrote) | to {mail} | where; which address | address
person | use | {company} as provider | what; which provider | provider | who {be} {s} with | {s} switched to {new}
person | wear (wore) | a {colour} coat | which colour | coat | what colour is {s}'s coat
person | wear (wore) | {things} | what | clothes
person | wear (wore) | number {count} | which number | shirt number | what is on {s}'s shirt | {s} has number {new} now
person | dress | as a {animal} | what | costume | what is {s}'s costume | {s} will be a {new} instead
person | play | a {job} in the play | what | role; part | which role {do} {s} have | {s} was given the part of the {new}
person | suffer | from {phrase} | what | illness
person | break (broke) | the {phrase} | what | damage
person | sponsor | {team} | who; which team | sponsored team
person | beat (beat) | {person} | who | defeated opponent | who lost against {s}
person | lose (lost) | against {person} | who | winner; opponent
person | sue | {company} | who | defendant
person | buy (bought) | {things} | what | purchase
person | buy (bought) the bread | at {org} | where | bakery
person | shop | at {org} | where; which shop | shop | where {do} {s} buy groceries | {s} goes to {new} now
person | get (got) | married in {month} | when; which month | wedding month | when is {s}'s wedding | {s} put the wedding off until {new}
person | get (got) | {percent} | how much | share; part | what percentage {do} {s} receive
person | own | {percent} of the company | how much | share
person | score | {count} goals | how many goals | goals | how often did {s} score
person | finish | in {ordinal} place | which place | place; rank | what place did {s} get
person | be | in {ordinal} place | which place | place; rank | | {s} climbed to {new} place
person | live | {length} away | how far | distance
person | know (knew) | me from {org} | where | meeting place | where did I meet {s}
thing | be | from {town} | where; which town | origin | where {do} {s} come from
thing | be | from {year} | when; which year | year | how old {be} {s}; which year {do} {s} date from
thing | be | worth {price} | how much | value; worth | what {be} the value of {s}; how valuable {be} {s} | the value of {s} rose to {new}
thing | be | on sale for {price} | how much | sale price | what {do} {s} cost at the moment | {s} went down to {new}
thing | go (went) | for {price} | how much | price | what {do} {s} cost; how expensive {be} {s} | {s} got cheaper, {new}; {s} costs {new} now
thing | sell (sold) | for {price} | how much | selling price; price | what {do} {s} cost; how much {be} {s} | {s} was marked down to {new}
thing | set (set) me back | {price} | how much | price | what did I pay for {s}; how much was {s}
thing event org | cost (cost) | {price} a month | how much | monthly fee; monthly cost | what do I pay for {s}; how expensive {be} {s} | {s} went up to {new} a month; the price of {s} rose to {new}
thing | be | insured for {price} | how much | insured value
thing | belong | in {room} | where; which room | place | where {do} {s} go
thing | go (went) | into {place} | where | place | where {do} {s} belong
thing | stand (stood) | in {place} | where | place | where {be} {s}; where can I find {s} | {s} was carried to {new}; they moved {s} to {new}
thing | hang (hung) | in {place} | where | place | where {be} {s}
thing | lie (lay) | in {place} | where | place | where {be} {s} | I put {s} in {new}
thing | be | stored in {place} | where | storage place | where do we keep {s}; where {be} {s} | {s} was taken to {new}
thing | be | parked at {place} | where | parking place | where {be} {s} | {s} is over at {new} now
thing | be | locked with {code} | what | combination; code | how do I open {s} | {s} opens with {new} now
thing | have | the code {code} | which code | code | how do I unlock {s} | the code of {s} was changed to {new}
thing | have | the serial number {code} | which serial number | serial number
thing | be | registered as {code} | what | registration
thing | be | labelled {word} | how; what | label | what does it say on {s}
thing | be | called {word} | what; how | name | what's the name of {s} | they renamed {s} to {new}
thing | be | owned by {person} | who | owner | whose {be} {s}; who owns {s}; who {do} {s} belong to | {s} was sold to {new}; {new} bought {s}
thing | be | built by {person} | who | builder | who built {s}; who made {s}
thing | be | made by {company} | who; which company | maker; manufacturer | who makes {s}; what brand {be} {s}
thing | be | designed by {person} | who | designer | who designed {s}; who came up with {s}
thing | be | painted by {person} | who | painter | who painted {s}
thing | be | written by {person} | who | author | who wrote {s}
thing | be | signed by {person} | who | signature | who signed {s}
thing | be | repaired by {person} | who | repairer | who repaired {s}; who fixed {s}
thing | be | borrowed from {person} | who | lender; owner | who lent us {s}; whose {be} {s}
thing | be | lent to {person} | who | borrower | who has {s}; who borrowed {s} | {s} went to {new} afterwards
thing | be | kept by {person} | who | keeper | who has {s} | {new} keeps {s} now
thing | be | reserved for {person} | who | recipient | who will get {s}; who {be} {s} for | {s} will go to {new} instead
thing | be | for {person} | who | recipient | who gets {s}; who will receive {s} | {s} will go to {new} instead
thing | be | a present from {person} | who | giver | who gave us {s}; who {be} {s} from
thing | be | addressed to {person} | who | addressee
thing | be | ready on {day} | when; which day | pick-up day | when can I pick up {s} | {s} won't be ready before {new}
thing | be | ready at {time} | when; what time | pick-up time | when can I collect {s} | {s} takes longer, until {new}
thing | be | delivered on {date} | when; which day | delivery date | when {do} {s} come; when {do} {s} arrive | delivery of {s} slipped to {new}
thing | ship | on {date} | when; which day | shipping date | when {be} {s} sent | shipping of {s} was delayed until {new}
thing | come (came) | on {day} | when; which day | delivery day | when {do} {s} arrive; when {be} {s} delivered | {s} is late and comes on {new}
thing | run (ran) out | in {month} | when; which month | end | until when {be} {s} valid
thing | be | valid until {date} | when | expiry date; validity | when {do} {s} expire; how long {be} {s} valid | {s} was extended until {new}
thing | be | guaranteed until {year} | when | guarantee | how long {be} {s} under guarantee
thing | need | {count} batteries | how many batteries | batteries
thing | need | {count} screws | how many screws | screws
thing | need | {material} | what | material
thing | run (ran) | version {version} | which version | version | what version {be} {s} on | {s} was updated to {new}; I upgraded {s} to {new}
thing | listen | on port {number} | which port | port | what port {do} {s} use | {s} moved to port {new}
thing | have | the IP {ip} | which IP | IP; IP address; address | under which address is {s} reachable | {s} got a new IP, {new}
thing | be | reachable at {url} | where | address; URL | under which address {be} {s} available | {s} moved to {new}
thing | run (ran) | on {word} | what; which server | server | where {be} {s} hosted | {s} was moved to {new}
thing | use | {quantity} | how much | consumption
thing | hold (held) | {quantity} | how much | capacity; content | how much fits into {s}
thing | measure | {length} | how much | measurement; size | how big {be} {s}; how large {be} {s}
thing | be | {length} high | how high | height
thing | be | {length} thick | how thick | thickness
thing | be | {length} from the wall | how far | distance
thing | be | {percent} full | how full | level | how much of {s} is used | {s} is up to {new} now
thing | be | {percent} off | how much | discount | what's the discount on {s} | {s} is reduced by {new} now
thing | be | {count} years old | how old | age | what is the age of {s}
thing | reach | {temperature} | how hot | temperature | how warm {do} {s} get
thing | be | set to {temperature} | how warm; what | setting; temperature | what temperature {do} {s} have | {s} was turned down to {new}; turn {s} up to {new}
thing | take (took) | {duration} | how long | time | how much time {do} {s} need
thing | work | for {duration} | how long | running time
thing | charge | in {duration} | how long; how fast | charging time
thing | have | {count} doors | how many doors | number of doors
thing | have | {count} legs | how many legs | number of legs
thing | have | {count} gears | how many gears | number of gears
thing | have | {count} rooms | how many rooms | number of rooms
thing | have | {count} seats | how many seats | number of seats
thing | have | {colour} handles | what colour; which colour | colour of the handles
thing | have | a {material} cover | what | cover
thing | have | a range of {length} | how far | range
thing | smell | like {food} | what | smell | what is the smell of {s}
thing | taste | like {food} | what | taste | what is the taste of {s}
thing | look | like a {animal} | what | look | what {do} {s} resemble
thing | sound | like a {instrument} | what | sound
thing | consist | of {material} | what | material | what {be} {s} made from; what material {be} {s}
thing | be | filled with {food} | what | filling; content | what is in {s} | I filled {s} with {new}
thing | be | covered with {material} | what | cover
thing | be | wrapped in {material} | what | wrapping
thing | be | connected to {phrase} | what | connection | what {be} {s} plugged into | I connected {s} to {new}
thing | be | hidden behind {phrase} | what | hiding place | where {be} {s}
thing | be | shaped like a {animal} | what | shape
thing | be | inspired by {title} | what | inspiration
thing | remind | me of {person} | who | person
thing | match | {phrase} | what | match
thing | replace | {phrase} | what | predecessor
thing | be | missing {phrase} | what | missing part
thing | play | {title} | what; which song | song
thing | show | {phrase} | what | picture
thing | say (said) | {title} | what | text; inscription | what is written on {s}
thing | arrive | from {country} | where; which country | origin
thing | get (got) cleaned | on {day}s | when; which day | cleaning day
thing | be | checked by {person} | who | inspector | who checks {s} | {new} checks {s} now
thing | be | in {ordinal} gear | which gear | gear
thing | be | on page {count} | which page | page | what page can I find {s} on
thing | be | in row {count} | which row | row
thing | be | in box {count} | which box | box | where {be} {s}; what box {be} {s} in | I put {s} into box {new}
thing | be | in locker {count} | which locker | locker | where {be} {s} | {s} went into locker {new}
thing | be | on shelf {count} | which shelf | shelf | where {be} {s} | {s} was moved to shelf {new}
org | have | the address {address} | which address | address | where {be} {s} | {s} moved to {new}
org | be | located in {town} | where; which town | location; town | where {be} {s} based; which city {be} {s} in | {s} moved its office to {new}
org | be | based in {country} | where; which country | country | what country {be} {s} in
org | be | behind {place} | where | location | what {be} {s} behind
org | be | opposite {place} | where | location | what {be} {s} opposite of
org | be | on {floor} | where; which floor | floor | what floor {be} {s} on | {s} moved to {new}
org | be | {length} from here | how far | distance | how far away {be} {s}
org | be | open until {time} | when | closing time | until when {be} {s} open; when {do} {s} close; how late {be} {s} open | {s} now stays open until {new}
org | be | open from {time} | when | opening time | when {do} {s} open; from when {be} {s} open | {s} opens at {new} now
org | be | open on {day}s | when; which day | opening day | which day {do} {s} open
org | shut (shut) | at {time} | when; what time | closing time | when {do} {s} close; until when {be} {s} open | {s} now stays open until {new}
org | open | on {date} | when; which day | opening; opening date | when is the opening of {s} | the opening of {s} was put off until {new}
org | reopen | in {month} | when; which month | reopening | | reopening of {s} slipped to {new}
org | close | for good in {month} | when; which month | end
org | be | called {word} | what | name | what is the name of {s} | {s} was renamed {new}
org | be | named after {person} | who | namesake
org | be | led by {person} | who | leader; head; director | who leads {s}; who runs {s}; who is the head of {s} | {new} took over {s}; {new} leads {s} now
org | be | owned by {person} | who | owner | who owns {s}; who {do} {s} belong to | {s} was sold to {new}; {new} bought {s}
org | be | owned by {company} | who | parent company | who owns {s} | {s} was taken over by {new}
org | be | sponsored by {company} | who | sponsor | who sponsors {s} | {new} sponsors {s} now
org | be | known for {food} | what | speciality | what {be} {s} famous for
org | specialise | in {things} | what | speciality | what does {s} focus on
org | produce | {things} | what | product | what {do} {s} make; what does {s} manufacture | {s} switched to {new}
org | offer | {sport} | what; which sport | offer
org | stock | {things} | what | stock | what can you buy at {s}
org | buy (bought) | {things} from us | what | order
org | compete | with {company} | who | competitor; rival | who is the rival of {s}
org | merge | with {company} | who | partner | which company {do} {s} join
org | buy (bought) | {company} | who; which company | acquisition | what company did {s} take over
org | supply (supplied) | {company} | who | customer
org | hire | {count} people | how many people | new staff
org | have | {count} members | how many members | number of members; members | how big {be} {s} | {s} grew to {new} members
org | have | {count} tables | how many tables | number of tables
org | have | {count} students | how many students | number of students
org | have | {count} branches | how many branches | number of branches
org | have | a rating of {number} | which rating | rating | how is {s} rated | the rating of {s} went to {new}
org | take (took) | {price} for the repair | how much | price of the repair | what {do} {s} charge for the repair
org | want | {price} for it | how much | price | what {do} {s} charge | {s} dropped the price to {new}
org | pay (paid) | {price} an hour | how much | wage | what do people earn at {s} | {s} raised the pay to {new}
org | accept | {phrase} | what | means of payment
org | close | for lunch at {time} | when; what time | lunch break
org | deliver | by {time} | when | delivery time | until when {do} {s} deliver
org | deliver | by {vehicle} | how | delivery
org | answer | at {phone} | what; which number | phone number | how do I reach {s}; what number {do} {s} have | {s} has a new number, {new}
org | use | {version} | which version; what | version
event bare | be | held in {room} | where; which room | room; venue | where do we meet for {s}; where {be} {s} | {s} was moved to {new}
event bare | be | held at {org} | where | venue | where {do} {s} take place; where {be} {s} | {s} was moved to {new}; we switched {s} to {new}
event bare | be | held on {day}s | when; which day | day | on which day {be} {s} | {s} moved to {new}s
event | be | hosted by {company} | who; which company | host
event | be | led by {person} | who | leader; head | who leads {s}; who is in charge of {s} | {new} leads {s} instead; {new} took over {s}
event | be | given by {person} | who | speaker | who gives {s} | {new} gives {s} instead
event | be | planned by {person} | who | planner | who plans {s}; who organises {s} | {new} took over planning {s}
event | be | paid by {person} | who | sponsor | who pays for {s} | {new} pays for {s} after all
event | be | won by {person} | who | winner | who won {s}
event | be | run by {person} | who | head | who runs {s} | {new} runs {s} now
event | be | moderated by {person} | who | moderator | who moderates {s}
event bare | be | scheduled for {time} | when; what time | time | when {be} {s}; at what time {do} {s} start | {s} got pushed back to {new}
event bare | be | scheduled for {date} | when; which day | date | when {be} {s}; on which day {do} {s} take place | {s} was put off until {new}; {s} has been pushed to {new}
event bare | be | set for {day} | when; which day | day | when {be} {s} | {s} was pushed to {new}; {s} slipped to {new}
event bare | kick off | at {time} | when; what time | kick-off; start | when {do} {s} start; what time {do} {s} begin | {s} now kicks off at {new}
event bare | get (got) going | at {time} | when; what time | start | when {do} {s} start
event bare | finish | at {time} | when; what time | end | when {do} {s} end; when {be} {s} over | {s} runs until {new}
event bare | run (ran) | until {time} | when | end | when {do} {s} end; until when {do} {s} last | {s} was extended until {new}
event bare | go (went) on | until {time} | when | end | until when {do} {s} last; when {be} {s} over
event bare | run (ran) | from {time} | when | start | from when {do} {s} run; when {do} {s} start
event bare | take (took) | {duration} | how long | duration; length | how long {do} {s} last | {s} was cut to {new}
event bare | be | {duration} long | how long | duration; length | how long {do} {s} last; how long {do} {s} take | {s} was shortened to {new}
event | be | limited to {count} people | how many people | limit | how many can come to {s}
event | draw (drew) | {count} visitors | how many visitors | visitors; number of visitors | how many people came to {s}
event | raise | {price} | how much | proceeds | how much money did {s} bring in
event | need | {count} volunteers | how many volunteers | volunteers
event | deal (dealt) | with {phrase} | what | topic | what {be} {s} about
event | cover | {subject} | what | topic; subject | what {be} {s} about | {s} will cover {new} instead
event | be | in {language} | which language | language | what language {be} {s} held in
event | be | in {town} | where; which town | town; place | which city {be} {s} in | {s} was moved to {new}
event | be | on {floor} | where; which floor | floor
event | be | for {people} | who | participants | who {be} {s} meant for
event | serve | {food} | what | food | what do we get to eat at {s}
event | include | {food} | what | food
event | start | with {title} | what | opening | what comes first at {s}
event | end | with {title} | what | finale | what comes last at {s}
event | be | postponed because of {phrase} | why | reason
event | stop | in {town} | where; which town | stop
event | come (came) | from {town} | where; which town | origin
event | be | late by {duration} | how long | delay | how late {be} {s}; how much delay {do} {s} have | {s} is {new} late now
event | connect | to {gate} | which gate | gate | | the gate of {s} changed to {new}
event | arrive | at {gate} | where; which gate; which platform | gate; platform | what platform {do} {s} come in on | {s} now comes in at {new}
animal | be | {count} months old | how many months; how old | age
animal | be | called {word} | what | name | what {be} the name of {s}; how do we call {s}
animal | eat (ate) | {quantity} a day | how much | daily ration | how much food {do} {s} need
animal | eat (ate) | {foods} | what | food; diet | what do I feed {s} | the vet put {s} on {new}; I feed {s} {new} now
animal | be | scared of {animals} | what | fear | what {do} {s} fear; what {be} {s} afraid of
animal | be | fed at {time} | when; what time | feeding time | when do I feed {s}; when {do} {s} eat | feed {s} at {new} from now on
animal | be | fed by {person} | who | feeder | who feeds {s}; who looks after {s} | {new} feeds {s} instead
animal | come (came) | from {org} | where | origin | where did we get {s}
animal | live | in {place} | where | home | where {do} {s} stay | {s} was moved to {new}
animal | hide (hid) | in {place} | where | hiding place
animal | wear (wore) | a {colour} collar | what colour; which colour | collar; colour of the collar | | {s} got a {new} collar
animal | have | {count} puppies | how many puppies | number of puppies
animal | have | the chip {code} | which chip | chip number
animal | play | with {phrase} | what | toy | what is the favourite toy of {s}
animal | listen | to {word} | what; which name | name
animal | chase | {animals} | what | prey
animal | be | looked after by {person} | who | sitter | who takes care of {s} | {new} looks after {s} instead
"""


def _parse(line: str) -> Predicate:
    subjects, verb, frame, wh, nouns, *more = (part.strip() for part in line.split("|"))
    questions, changes = (*more, "", "")[:2]
    past = ""
    if "(" in verb:
        at, end = verb.index("("), verb.index(")")
        past = verb[at + 1 : end] + verb[end + 1 :]
        verb = verb[:at].strip() + verb[end + 1 :]
    before, rest = frame.split("{")
    value_type, after = rest.split("}")
    return Predicate(
        tuple(subjects.split()), verb, past or _past(verb), before, value_type, after,
        tuple(w.strip() for w in wh.split(";")), _list(nouns), _list(questions),
        tuple(c.replace("{new}", "{{new}}") for c in _list(changes)),
    )  # fmt: skip


def _list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(";") if part.strip())


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


PREDICATES = list({(p.name, p.subjects): p for p in map(_parse, _LINES.strip().splitlines())}.values())
