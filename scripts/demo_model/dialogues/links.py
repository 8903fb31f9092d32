"""Links of questions of two steps: what names somebody or something, and what can be said of it.

First links:   kind of what is named | statements | descriptions | questions for it
Second links:  kinds | statements | kind of value | questions
{b} what is named; {a} a person, {t} a thing, {e} an event, {o} an organisation, {r} a relation, {j} a job, {s} a subject, {f} a free noun;
{v} the value; {x} a description, {x's} one that takes an s.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class First:
    kind: str
    statements: tuple[str, ...]
    descriptions: tuple[str, ...]
    asks: tuple[str, ...]


@dataclass(frozen=True)
class Second:
    kinds: tuple[str, ...]
    statements: tuple[str, ...]
    value: str
    asks: tuple[str, ...]


_FIRST = """
person | {a's} {r} is {b}; {b} is {a's} {r}; {a's} {r} is called {b}; The name of {a's} {r} is {b}; {a's} {r} is named {b}; {a's} {r}: {b} | {a's} {r}; the {r} of {a}; {a's} {r} | who is {a's} {r}; what is {a's} {r} called; what's the name of {a's} {r}
person | {a's} {r} is {b}; {b} is {a's} {r}; {a's} {r} is called {b} | {a's} {r}; {a's} {r} | who is {a's} {r}; what is {a's} {r} called
person | {a's} {r}'s {r2} is {b}; {a's} {r}'s {r2} is called {b}; {b} is {a's} {r}'s {r2} | {a's} {r}'s {r2}; the {r2} of {a's} {r} | who is {a's} {r}'s {r2}; what is {a's} {r}'s {r2} called
person | {b} has {t}; {t} is with {b}; I gave {t} to {b}; {b} took {t}; I lent {t} to {b}; {b} keeps {t} | the person who has {t}; whoever has {t}; the one who has {t}; the person with {t}; the one with {t} | who has {t}; who is {t} with
person | {b} runs {o}; {o} is run by {b}; {b} is in charge of {o}; {b} manages {o}; The manager of {o} is {b} | whoever runs {o}; the person who runs {o}; the manager of {o}; the one who runs {o}; the boss of {o} | who runs {o}; who is in charge of {o}; who manages {o}
person | {b} owns {o}; {o} belongs to {b}; The owner of {o} is {b}; {o} is owned by {b} | the owner of {o}; the person who owns {o}; whoever owns {o} | who owns {o}; who is the owner of {o}
person | {o} was founded by {b}; {b} founded {o}; The founder of {o} is {b} | the founder of {o}; the person who founded {o} | who founded {o}; who is the founder of {o}
person | our {j} is {b}; {b} is our {j}; The {j} is {b}; The {j} is called {b}; {b} works as our {j} | our {j}; the {j}; the person who works as our {j} | who is our {j}; who is the {j}; what is the {j} called
person | {b} teaches {s}; The {s} teacher is {b}; {s} is taught by {b}; Our {s} teacher is {b} | the {s} teacher; the person who teaches {s}; whoever teaches {s}; our {s} teacher | who teaches {s}; who is the {s} teacher
person | {b} won {e}; {e} was won by {b}; The winner of {e} is {b} | the winner of {e}; the person who won {e}; whoever won {e} | who won {e}
person | {b} organises {e}; {e} is organised by {b}; {b} is organising {e}; {b} hosts {e} | the organiser of {e}; the person who organises {e}; whoever organises {e}; the host of {e} | who organises {e}; who hosts {e}
person | {b} leads {e}; {e} is led by {b}; {b} runs {e} | the person who leads {e}; whoever leads {e}; the leader of {e} | who leads {e}; who runs {e}
person | {t} belongs to {b}; {b} owns {t}; The owner of {t} is {b}; {t} is {b}'s | the owner of {t}; the person {t} belongs to; the person who owns {t}; whoever owns {t} | who owns {t}; who does {t} belong to; whose is {t}
person | {b} fixed {t}; {t} was repaired by {b}; {b} repaired {t} | the person who fixed {t}; the one who repaired {t}; whoever fixed {t} | who fixed {t}; who repaired {t}
person | {b} found {t}; {t} was found by {b} | the person who found {t}; whoever found {t}; the one who found {t} | who found {t}
person | {b} bought {t}; I sold {t} to {b}; {t} was bought by {b} | the person who bought {t}; the buyer of {t}; whoever bought {t} | who bought {t}
person | {b} built {t}; {t} was built by {b}; {b} made {t}; {t} was made by {b} | the person who built {t}; the person who made {t}; whoever made {t} | who built {t}; who made {t}
person | {a} is married to {b}; {b} is married to {a}; {a} married {b} | {a}'s spouse; the person {a} is married to; {a}'s wife; {a}'s husband; {a}'s partner | who is {a} married to
person | {a} reports to {b}; {b} is the boss of {a}; {a} works under {b} | {a's} boss; the person {a} reports to; the boss of {a}; {a's} manager | who does {a} report to; who is the boss of {a}
person | {a} lives with {b}; {a} shares a flat with {b} | {a's} flatmate; the person {a} lives with; {a's} roommate | who does {a} live with
person | {a} met {b}; {a} had lunch with {b}; {a} had lunch with {b} yesterday | the person {a} met; the person {a} had lunch with | who did {a} meet
person | {a} is dating {b}; {a} is in love with {b} | the person {a} is dating; the person {a} loves | who is {a} dating
person | {a} is taught by {b}; {b} teaches {a} | {a's} teacher; the person who teaches {a} | who teaches {a}
person | {b} sits next to {a}; {a} sits next to {b} | the person next to {a}; the person who sits next to {a} | who sits next to {a}
person | {b} sits in room {n}; Room {n} is {b}'s office; {b} is in room {n} | the person in room {n}; whoever sits in room {n} | who sits in room {n}; who is in room {n}
person | {b} is on call on {d}; On {d} {b} is on call; {b} has the {d} shift | the person on call on {d}; whoever is on call on {d}; the one who is on call on {d} | who is on call on {d}; who has the {d} shift
org | {a} works for {b}; {a} works at {b}; {a} has a job at {b}; {b} hired {a}; {a} is employed by {b} | the company {a} works for; the company that {a} works for; {a's} employer; the place where {a} works; the company where {a} works; the firm {a} works at; {a's} company | where does {a} work; who does {a} work for; which company does {a} work for
org | {a} studies at {b}; {a} goes to {b}; {a} is a student at {b} | {a's} school; the school {a} goes to; the university {a} goes to; the place where {a} studies | where does {a} study; which school does {a} go to
org | {a} runs {b}; {a} owns {b}; {b} is run by {a} | {a's} business; {a's} shop; the place {a} runs; the place {a} owns | what does {a} run; which place does {a} run
org | {t} is made by {b}; {b} makes {t}; The maker of {t} is {b} | the maker of {t}; the company that makes {t}; the company that made {t} | who makes {t}; who is the maker of {t}
org | {t} comes from {b}; I bought {t} at {b}; We ordered {t} from {b} | the shop {t} comes from; the place where I bought {t}; the shop that sold {t} | where does {t} come from; where did I buy {t}
org | {a} is staying at {b}; {a} booked a room at {b}; {a's} hotel is {b} | {a's} hotel; the hotel {a} is staying at; the place where {a} is staying | where is {a} staying; which hotel is {a} in
org | {e} is at {b}; {e} takes place at {b}; We have {e} at {b} | the place where {e} is; the place of {e}; the venue of {e} | where is {e}; where does {e} take place
org | {a} trains at {b}; {a} swims at {b}; {a} goes to {b} every week | the place where {a} trains; {a's} gym; the gym {a} goes to | where does {a} train
org | {t} is insured with {b}; {b} insures {t} | the company that insures {t}; the insurer of {t} | who insures {t}
room | {t} is in {b}; I put {t} in {b}; {t} is kept in {b}; You will find {t} in {b}; I left {t} in {b} | the room with {t}; the room where {t} is; the place where {t} is; the room {t} is in; the room I left {t} in | where is {t}; which room is {t} in; where did I put {t}
room | {e} is in {b}; {e} takes place in {b}; {b} is booked for {e} | the room where {e} is; the room of {e}; the room {e} is in; the place of {e} | where is {e}; which room is {e} in
room | {a} works in {b}; {a's} office is {b}; {a} sits in {b} | {a's} office; the room {a} works in; the room where {a} sits | where does {a} work; which room does {a} sit in
room | {a} sleeps in {b}; {a's} room is {b} | {a's} room; the room {a} sleeps in; the room where {a} sleeps | where does {a} sleep; which room is {a's}
town | {a} lives in {b}; {a} moved to {b}; {a} has a flat in {b}; {a's} home is in {b} | the city {a} lives in; the town where {a} lives; {a's} home town; the place where {a} lives | where does {a} live; which city does {a} live in
town | {a} was born in {b}; {a} comes from {b}; {a} grew up in {b} | the town {a} was born in; {a's} birthplace; the town {a} comes from | where was {a} born; where does {a} come from
town | {o} is in {b}; {o} is based in {b}; You find {o} in {b} | the city where {o} is; the town {o} is in; the city {o} is based in | where is {o}; which city is {o} in
town | {e} is in {b}; {e} takes place in {b} | the city where {e} is; the town {e} takes place in | where is {e}
town | {a} is going to {b}; {a} flies to {b} on {d}; {a} travels to {b} | the city {a} is going to; {a's} destination; the place {a} travels to | where is {a} going; where does {a} travel
team | {a} plays for {b}; {a} is on {b}; {a} is in {b} | {a's} team; the team {a} plays for; the team {a} is in | which team does {a} play for; which team is {a} in
team | {a} coaches {b}; {b} are coached by {a} | the team {a} coaches; {a's} team | which team does {a} coach
team | {e} was won by {b}; {b} won {e} | the team that won {e}; the winner of {e} | who won {e}; which team won {e}
group | {a} is in {b}; {a} was put in {b}; {a} joined {b} | {a's} group; the group {a} is in; the group that {a} joined | which group is {a} in; which group did {a} join
line | {a} takes {b}; {a} goes by {b}; {a} is on {b} | {a's} train; the train {a} takes; the one {a} takes; {a's} bus; the bus {a} takes | which line does {a} take; what does {a} take
line | {b} goes to {o}; You get to {o} with {b} | the line that goes to {o}; the bus to {o}; the train that goes to {o} | which line goes to {o}
flight | {a} is on flight {b}; {a's} flight is {b}; {a} takes flight {b} | {a's} flight; the flight {a} is on; the flight {a} takes | which flight is {a} on; what is {a's} flight
car | {a} drives {b}; {a's} car is {b}; {a} bought {b}; {a} came in {b} | {a's} car; the car {a} drives; the vehicle {a} drives | what does {a} drive; which car does {a} drive
book | {a} is reading {b}; {a's} favourite book is {b}; {a} borrowed {b}; {a} wants to read {b}; {a} is reading {b} at the moment | the book {a} is reading; {a's} book; {a's} favourite book; the book that {a} has | what is {a} reading; which book is {a} reading
book | our book club reads {b}; The book of the month is {b} | the book of the month; the book our book club reads | what is the book of the month
pet | {a's} {p} is called {b}; {b} is {a's} {p}; {a} has a {p} named {b}; {a's} {p} is {b} | {a's} {p}; the {p} of {a} | what is {a's} {p} called; who is {a's} {p}
pet | {b} bit {a}; {b} ran after {a} | the animal that bit {a} | who bit {a}; what bit {a}
box | {t} is in {b}; I put {t} in {b}; {t} lies in {b}; {t} is inside {b} | the place where {t} is; the one with {t} in it; the box with {t}; the thing {t} is in | where is {t}; what is {t} in
locker | {t} is in {b}; {a} put {t} in {b}; {b} holds {t} | the locker with {t}; the locker {t} is in; the locker that holds {t} | where is {t}; which locker is {t} in
locker | {a} has {b}; {a} uses {b}; {b} belongs to {a} | {a's} locker; the locker {a} uses; the locker that belongs to {a} | which locker does {a} have; what is {a's} locker
project | {a} works on {b}; {a} leads {b}; {a's} project is called {b}; {a's} project is {b} | {a's} project; the project {a} works on; the project {a} leads | what does {a} work on; which project does {a} lead; what is {a's} project
project | {o} ordered {b}; {b} is for {o}; We do {b} for {o} | the project for {o}; the project {o} ordered | what is for {o}; which project is for {o}
server | {f} runs on {b}; {f} is hosted on {b}; {b} hosts {f} | the server {f} runs on; the machine that hosts {f}; the host of {f} | where does {f} run; which server does {f} run on
event | {a} speaks at {b}; {a} comes for {b}; {a} is going to {b} | the event {a} speaks at; the event {a} is going to | where does {a} speak; what is {a} going to
event | {t} is for {b}; I need {t} for {b} | the event I need {t} for; the event {t} is for | what is {t} for; what do I need {t} for
"""
_SECOND = """
person | {b} lives in {v}; {b} has a flat in {v}; {b} moved to {v}; {v} is where {b} lives | town | where does {x} live; which city does {x} live in; in which town does {x} live; what city does {x} live in
person | {b} works at {v}; {b} works for {v}; {b} has a job at {v} | org | where does {x} work; which company does {x} work for; who does {x} work for; what is the workplace of {x}
person | {b} works as a {v}; {b} is a {v}; {b} is a {v} by trade | job | what does {x} do; what is the job of {x}; what does {x} do for a living; what is {x's} job; what does {x} work as
person | {b}'s phone number is {v}; You can reach {b} at {v}; {b} has the number {v}; Call {b} at {v}; The number of {b} is {v} | phone | what is the phone number of {x}; how can I reach {x}; what is {x's} phone number; what number does {x} have; which number do I call for {x}; what's the number of {x}
person | {b}'s email is {v}; You can write to {b} at {v}; {b} uses {v} | mail | what is the email of {x}; how can I email {x}; what is {x's} email address; where do I write to {x}
person | {b} drives a {v}; {b} has a {v}; {b} drives the {v} | phrase | what car does {x} drive; what does {x} drive; which car does {x} drive; what kind of car does {x} have
person | {b} gets back on {v}; {b} is back on {v}; {b} comes back on {v}; {b} returns on {v} | day | when does {x} get back; when is {x} back; when does {x} come back; when does {x} return; on which day does {x} get back
person | {b} arrives at {v}; {b} gets here at {v}; {b} will be here at {v} | time | when does {x} arrive; what time does {x} arrive; when will {x} be here; at what time does {x} get here
person | {b} is on holiday until {v}; {b} is away until {v}; {b} is sick until {v} | date | until when is {x} away; how long is {x} away; until when is {x} on holiday
person | {b} speaks {v}; {b} grew up speaking {v}; {b}'s mother tongue is {v} | language | what language does {x} speak; which language does {x} speak; what is the mother tongue of {x}; what does {x} speak
person | {b} plays the {v}; {b} is learning the {v} | instrument | what instrument does {x} play; which instrument does {x} play; what does {x} play
person | {b} plays {v}; {b} loves {v}; {b}'s sport is {v} | sport | what sport does {x} play; which sport does {x} play; what does {x} play
person | {b}'s birthday is {v}; {b} was born on {v}; {b} has birthday on {v} | date | when is {x's} birthday; when is the birthday of {x}; when was {x} born; when does {x} have birthday
person | {b} was born in {v}; {b} was born in the year {v} | year | in which year was {x} born; when was {x} born; what year was {x} born in
person | {b} is {v} years old; {b} turned {v}; {b} is {v} | age | how old is {x}; what is the age of {x}; what age is {x}
person | {b} comes from {v}; {b} is from {v}; {b} was born in {v} | country | where does {x} come from; which country is {x} from; where is {x} from; what country does {x} come from
person | {b} sits in room {v}; {b}'s office is room {v}; You find {b} in room {v} | number3 | which room does {x} sit in; where does {x} sit; what is the room of {x}; where do I find {x}; which room is {x} in
person | {b} is allergic to {v}; {b} can't eat {v} | food | what is {x} allergic to; what can't {x} eat; which allergy does {x} have
person | {b} loves {v}; {b}'s favourite food is {v}; {b} likes {v} best | food | what does {x} love; what is {x's} favourite food; what does {x} like; what is the favourite food of {x}; what does {x} like to eat
person | {b} studies {v}; {b} studied {v} | subject | what does {x} study; which subject did {x} study; what did {x} study
person | {b} has a {p} called {v}; {b}'s {p} is called {v} | word | what is {x's} {p} called; what is the name of {x's} {p}; what is the {p} of {x} called
person | {b} takes {v}; {b} comes by {v} | line | which line does {x} take; how does {x} come; what does {x} take
person | {b} wants a {v}; {b} would like a {v}; {b} wishes for a {v} | phrase | what does {x} want; what would {x} like; what should I give {x}
person | {b} collects {v}; {b} has a collection of {v} | things | what does {x} collect
person | {b} drinks {v}; {b} only drinks {v}; {b}'s drink is {v} | drink | what does {x} drink; what is the drink of {x}
person | {b} starts work at {v}; {b} starts at {v} every day | time | when does {x} start work; at what time does {x} start; when does {x} begin to work
person | {b} paid {v}; {b} gave {v} | price | how much did {x} pay; what did {x} pay; how much did {x} give
person | {b} earns {v}; {b} gets {v} a month | price | how much does {x} earn; what does {x} earn; how much does {x} get
person | {b} lives at {v}; {b}'s address is {v} | address | what is the address of {x}; where does {x} live; at which address does {x} live; what is {x's} address
person | {b} wears size {v}; {b} has shoe size {v} | size | what size does {x} wear; which shoe size does {x} have; what is the size of {x}
person | {b}'s favourite colour is {v}; {b} always wears {v}; {b} likes {v} | colour | what is {x's} favourite colour; what colour does {x} like; which colour does {x} wear; what is the favourite colour of {x}
person | {b} flies to {v}; {b} is flying to {v}; {b} is in {v} this week; {b} is travelling to {v} | town | where does {x} fly; where is {x} flying to; which city does {x} fly to; where is {x} travelling
person | {b}'s car is {v}; {b}'s car is parked {v}; {b} parked {v} | spot | where did {x} park; where is {x's} car; where is the car of {x}; where is {x's} car parked
person | {b} can meet on {v}; {b} has time on {v}; {b} is free on {v} | day | when is {x} free; when does {x} have time; when can {x} meet; which day is {x} free
person | {b} bought a {v}; {b} got a {v}; {b} ordered a {v} | phrase | what did {x} buy; what did {x} get; what did {x} order
org | {b} is based in {v}; {b} is in {v}; The office of {b} is in {v}; {b} has its seat in {v}; {b} has its headquarters in {v} | town | where is {x}; which city is {x} based in; where is {x} based; which town is {x} in; what city is {x} in; where is {x} located; where does {x} have its headquarters
org | {b} makes {v}; {b} produces {v}; {b} sells {v} | things | what does {x} make; what does {x} sell; what does {x} produce
org | {b} was founded in {v}; {b} exists since {v}; {b} started in {v} | year | when was {x} founded; in which year was {x} founded; since when does {x} exist; how old is {x}
org | {b} has {v} employees; {v} people work at {b}; {b} employs {v} people | count | how many employees does {x} have; how many people work at {x}; how many people does {x} employ; how big is {x}
org | {b} opens at {v}; {b} is open from {v} | time | when does {x} open; what time does {x} open; at what time does {x} open; from when is {x} open
org | {b} closes at {v}; {b} shuts at {v} | time | when does {x} close; what time does {x} close; until when is {x} open
org | {b} is closed on {v}; {b} has its day off on {v} | day | when is {x} closed; on which day is {x} closed; what day is {x} closed
org | {b}'s phone number is {v}; You can call {b} at {v}; The number of {b} is {v} | phone | what is the phone number of {x}; how can I call {x}; what number does {x} have; what is the number of {x}
org | {b} is at {v}; {b}'s address is {v}; The address of {b} is {v} | address | what is the address of {x}; where is {x}; at which address is {x}
org | {b} is run by {v}; {v} runs {b}; The director of {b} is {v}; {v} is the boss of {b} | person | who runs {x}; who is the director of {x}; who is the boss of {x}; who is in charge of {x}
org | {b} belongs to {v}; {v} owns {b}; The owner of {b} is {v} | person | who owns {x}; who is the owner of {x}; who does {x} belong to
org | {b} is next to {v}; {b} is opposite {v}; {b} is behind {v} | place | what is {x} next to; where is {x}; where do I find {x}
org | {b} charges {v}; {b} costs {v}; A ticket for {b} is {v} | price | how much does {x} charge; how much does {x} cost; how much is {x}
room | {v} has the key for {b}; The key for {b} is with {v}; {v} has the key to {b} | given | who has the key for {x}; who has the key to {x}; who can open {x}; with whom is the key for {x}
room | {b} is on floor {v}; You find {b} on floor {v} | floorno | on which floor is {x}; which floor is {x} on; what floor is {x} on
room | {b} has {v} chairs; There are {v} chairs in {b}; {b} seats {v} people | count | how many chairs does {x} have; how many people fit in {x}; how many chairs are in {x}; how many seats does {x} have
room | {b} is {v}; {b} is painted {v}; The walls of {b} are {v} | colour | what colour is {x}; which colour is {x}; what colour are the walls of {x}
room | {b} is next to {v}; {b} is opposite {v}; {b} is behind {v} | place | what is {x} next to; where is {x}
room | {b} opens with {v}; The code for {b} is {v}; The door code of {b} is {v} | code | what is the code for {x}; how do I open {x}; which code opens {x}; what is the door code of {x}
room | {b} is cleaned by {v}; {v} cleans {b} | given | who cleans {x}; by whom is {x} cleaned
room | {b} is closed on {v}; {b} is locked on {v} | day | when is {x} closed; on which day is {x} locked
town | {b} is in {v}; {b} lies in {v} | country | which country is {x} in; in which country is {x}; what country is {x} in
town | {b} has {v} inhabitants; {v} people live in {b} | number | how many inhabitants does {x} have; how many people live in {x}; how big is {x}
town | The mayor of {b} is {v}; {v} is the mayor of {b}; {b}'s mayor is {v} | person | who is the mayor of {x}; what is the mayor of {x} called
town | {b} is famous for {v}; {b} is known for {v} | food | what is {x} famous for; what is {x} known for
town | {b} is {v} away; {b} is {v} from here; It is {v} to {b} | distance | how far is {x}; how far away is {x}; how far is it to {x}
town | The weather in {b} is {v}; It is {v} in {b} | weather | how is the weather in {x}; what is the weather like in {x}; what's the weather in {x}
team | {b} train on {v}; {b} practise on {v}; Training of {b} is on {v} | day | when does {x} train; on which day does {x} train; when does {x} practise; what day does {x} train
team | {b} is coached by {v}; {v} coaches {b}; The coach of {b} is {v} | person | who coaches {x}; who is the coach of {x}; who trains {x}
team | {b} play in {v}; {b} wear {v}; The shirts of {b} are {v} | colour | what colour does {x} wear; which colour does {x} play in; what colour are the shirts of {x}
team | {b} play at {v}; The home ground of {b} is {v} | org | where does {x} play; what is the home ground of {x}
group team | {b} meets at {v}; {b} starts at {v} | time | when does {x} meet; what time does {x} meet; at what time does {x} start
group team | {b} meets in {v}; {b} gathers in {v} | room | where does {x} meet; in which room does {x} meet; where does {x} gather
group | {b} goes to {v}; {b} visits {v} | place | where does {x} go; what does {x} visit
group | {b} is led by {v}; {v} leads {b}; The leader of {b} is {v} | given | who leads {x}; who is the leader of {x}
line flight | {b} leaves at {v}; {b} departs at {v}; {b} goes at {v} | time | when does {x} leave; what time does {x} leave; at what time does {x} depart; when does {x} go
line flight | {b} arrives at {v}; {b} gets in at {v} | time | when does {x} arrive; what time does {x} get in; at what time does {x} arrive
line flight | {b} leaves from {v}; {b} goes from {v} | gate | where does {x} leave from; from where does {x} go; which gate does {x} leave from; which platform does {x} leave from
line flight | {b} is {v} late; {b} has a delay of {v} | delay | how late is {x}; how much delay does {x} have; what is the delay of {x}
flight line | {b} goes to {v}; The destination of {b} is {v} | town | where does {x} go; what is the destination of {x}
car | {b} is parked {v}; {b} is {v}; {b} stands {v} | spot | where is {x}; where is {x} parked; where does {x} stand
car | {b} is from {v}; {b} was built in {v} | year | how old is {x}; when was {x} built; what year is {x} from
car | {b} costs {v}; {b} is worth {v} | price | how much does {x} cost; how much is {x} worth; what is {x} worth
car | The plate of {b} is {v}; {b} has the plate {v} | code | what is the plate of {x}; which plate does {x} have; what is the number plate of {x}
book | {b} was written by {v}; {v} wrote {b}; The author of {b} is {v}; {b} is by {v} | person | who wrote {x}; who is the author of {x}; by whom is {x}; who is {x} by
book | {b} came out in {v}; {b} was published in {v}; {b} is from {v} | year | when was {x} published; when did {x} come out; in which year was {x} published; what year is {x} from
book | {b} has {v} pages; {b} is {v} pages long | count | how many pages does {x} have; how long is {x}
book | {b} is about {v}; {b} tells of {v} | phrase | what is {x} about; what does {x} tell of
book | {b} is due back on {v}; {b} must be returned on {v} | date | when is {x} due back; when must {x} be returned
pet | {b} eats {v}; {b} loves {v}; {b} only eats {v} | food | what does {x} eat; what does {x} love; what food does {x} get
pet | {b} is {v} years old; {b} is {v} | age | how old is {x}; what is the age of {x}
pet | {b} sleeps in {v}; {b} always sleeps in {v} | place | where does {x} sleep
pet | {b} weighs {v} | weight | how much does {x} weigh; how heavy is {x}; what does {x} weigh
pet | {b} is {v}; {b} has {v} fur | colour | what colour is {x}; which colour does {x} have; what colour is the fur of {x}
pet | {b} sees the vet on {v}; {b} has to go to the vet on {v} | date | when does {x} see the vet; when does {x} have to go to the vet
box locker | The code of {b} is {v}; {b} opens with {v}; The combination of {b} is {v} | code | what is the code of {x}; how do I open {x}; which code opens {x}; what's the combination of {x}
box | {b} is {v}; {b} stands {v}; I put {b} {v} | spot | where is {x}; where does {x} stand; where did I put {x}
locker box | {v} has the key for {b}; The key for {b} is with {v} | given | who has the key for {x}; who can open {x}; who has the key of {x}
locker | {b} is in {v}; You find {b} in {v} | room | where is {x}; where do I find {x}; in which room is {x}
project | {b} is due on {v}; The deadline of {b} is {v}; {b} ends on {v}; {b} has to be finished by {v} | date | when is {x} due; what is the deadline of {x}; when does {x} end; when does {x} have to be finished
project | {b} has a budget of {v}; The budget of {b} is {v} | price | what is the budget of {x}; how much money does {x} have; how big is the budget of {x}
project | {b} is for {v}; The client of {b} is {v} | company | who is {x} for; who is the client of {x}
project | {b} is written in {v}; {b} uses {v} | word | what is {x} written in; what does {x} use
server | The IP of {b} is {v}; {b} has the IP {v}; {b}'s address is {v} | ip | what is the IP of {x}; which address does {x} have; what's the IP address of {x}
server | {b} is in {v}; {b} stands in {v} | room | where is {x}; where does {x} stand; in which room is {x}
server | {b} is looked after by {v}; {v} looks after {b}; The admin of {b} is {v} | given | who looks after {x}; who is the admin of {x}
server | {b} has {v} cores; {b} has {v} GB of memory | count | how many cores does {x} have; how much memory does {x} have
event | {b} is on {v}; {b} takes place on {v}; {b} will be on {v} | day | when is {x}; on which day is {x}; what day is {x}; when does {x} take place
event | {b} starts at {v}; {b} begins at {v} | time | when does {x} start; what time does {x} start; at what time does {x} begin
event | {b} is in {v}; {b} takes place in {v} | room | where is {x}; in which room is {x}; where does {x} take place
event | {b} costs {v}; Tickets for {b} are {v} | price | how much does {x} cost; how much are tickets for {x}
"""


def _fields(line: str) -> list[tuple[str, ...]]:
    return [tuple(part.strip() for part in field.split(";")) for field in line.split(" | ")]


FIRST = [First(kind[0], *rest) for kind, *rest in map(_fields, _FIRST.strip().splitlines())]
SECOND = [
    Second(tuple(kinds[0].split()), statements, value[0], asks)
    for kinds, statements, value, asks in map(_fields, _SECOND.strip().splitlines())
]
