"""The facts that can be stated: relations with their nouns, statements and questions.

One block per relation: `name | kinds of entity | type of value`, then `n:` other nouns, `s:` statements and `q:` questions,
separated by semicolons. {e} is the entity, {v} the value, [open] a verb that phrasing inflects. Values come after their key:
a causal model of three layers can then carry the key forward to the value."""

from dataclasses import dataclass

_TEXT = """
opening time | shop place | time
n: opening hour; hour of opening; time of opening; morning opening time
s: {e} [open] at {v}; {e} [open] its doors at {v}; the doors of {e} open at {v}; {e} [let] people in from {v}; people can walk into {e} from {v} on; {e} [unlock] its doors at {v}; {e} is open from {v}; the first visitors enter {e} at {v}; you can get into {e} from {v}; {e} [start] the day at {v}; nobody gets into {e} before {v}
q: when does {e} [open]; what time does {e} [open]; at what time does {e} [open] its doors; from when is {e} open; when can people walk into {e}; how early can I get into {e}; when does {e} [unlock] its doors; when do the doors of {e} open; when does {e} [let] people in
closing time | shop place | time
n: closing hour; hour of closing; time of closing; evening closing time
s: {e} [close] at {v}; {e} [close] its doors at {v}; the doors of {e} close at {v}; {e} [shut] at {v}; {e} [shut] its doors at {v}; {e} is open until {v}; {e} [lock] up at {v}; the last visitors leave {e} at {v}; you have to be out of {e} by {v}; {e} [end] the day at {v}; {e} [stay] open until {v}
q: when does {e} [close]; what time does {e} [close]; at what time does {e} [shut] its doors; until when is {e} open; how late does {e} [stay] open; when does {e} [lock] up; when do the doors of {e} close; when do I have to be out of {e}; when does {e} [shut]
lunch break | shop company | time
n: break at noon; lunch pause; midday break; start of the lunch break
s: {e} [take] its lunch break at {v}; {e} [pause] for lunch at {v}; lunch at {e} starts at {v}; people at {e} eat lunch at {v}; {e} [break] for lunch at {v}; the midday break at {e} begins at {v}; the staff of {e} go to lunch at {v}
q: when does {e} [take] its lunch break; when does {e} [pause] for lunch; when is lunch at {e}; at what time do people at {e} eat lunch; when does {e} [break] for lunch; when do the staff of {e} go to lunch
owner | shop hotel thing pet route | person
n: proprietor; rightful owner; present owner; registered owner
s: {e} [belong] to {v}; {e} is owned by {v}; the one who owns {e} is {v}; {e} is the property of {v}; {e} is in the hands of {v}; the person {e} [belong] to is {v}; {e} was bought by {v}; the deed of {e} names {v}
q: who owns {e}; to whom does {e} [belong]; who does {e} [belong] to; whose property is {e}; who is {e} owned by; in whose hands is {e}; who bought {e}
manager | shop place hotel event | person
n: head manager; person in charge; acting manager; general manager
s: {e} is managed by {v}; {e} is run by {v}; the one who manages {e} is {v}; the person who runs {e} is {v}; in charge of {e} is {v}; {e} [have] a manager called {v}; at {e} the boss is {v}; {e} is headed by {v}; the staff of {e} answer to {v}
q: who manages {e}; who runs {e}; who is in charge of {e}; who is the boss at {e}; by whom is {e} managed; who heads {e}; who do the staff of {e} answer to
phone number | shop place person company hotel | phone
n: telephone number; number to call; phone; contact number
s: you can call {e} on {v}; you can reach {e} by phone on {v}; to phone {e} you dial {v}; to call {e} dial {v}; {e} [answer] the phone on {v}; {e} can be called on {v}; {e} can be reached by telephone on {v}; to ring {e} use {v}; if you want to talk to {e} dial {v}
q: how can I call {e}; on what number can I reach {e}; what do I dial for {e}; which number do I dial to call {e}; how do I reach {e} by phone; what number does {e} [answer] on; how can I ring {e}
address | shop place person company hotel | address
n: street address; postal address; exact address; full address
s: {e} is at {v}; you find {e} at {v}; {e} can be found at {v}; {e} is located at {v}; letters for {e} go to {v}; mail for {e} is sent to {v}; {e} [live] at {v}; {e} [stand] at {v}; to visit {e} go to {v}; {e} moved to {v}
q: where is {e}; where do I find {e}; where can {e} be found; where is {e} located; where do letters for {e} go; where does {e} [live]; where do I send mail for {e}; where do I go to visit {e}; at what address is {e}
entrance fee | place event | price
n: entry fee; admission fee; price of admission; entry price
s: {e} [charge] visitors {v}; to get into {e} you pay {v}; entry to {e} costs {v}; admission to {e} is {v}; visitors of {e} pay {v}; to enter {e} people pay {v}; a visit to {e} costs {v}; at the entrance of {e} they ask for {v}
q: how much does {e} [charge] visitors; what do I pay to get into {e}; how much is entry to {e}; how much is admission to {e}; what does entry to {e} cost; what do visitors of {e} pay; how much does a visit to {e} cost
door code | shop company hotel place | code
n: code for the door; entry code; key code; door lock code
s: the door of {e} opens with {v}; to open the door of {e} type {v}; to unlock {e} enter {v}; at the door of {e} you type {v}; the lock at {e} takes {v}; you get through the door of {e} with {v}; the keypad of {e} wants {v}
q: how do I open the door of {e}; what do I type at the door of {e}; which code opens the door of {e}; which code unlocks {e}; what does the lock at {e} take; how do I get through the door of {e}; what does the keypad of {e} want
wifi password | shop hotel company place | pair
n: password for the wifi; wireless password; network password; internet password
s: the wifi at {e} needs {v}; to get online at {e} type {v}; to join the network at {e} use {v}; the network at {e} is protected by {v}; guests of {e} get online with {v}; the internet at {e} asks for {v}; wifi at {e} works with {v}
q: how do I get online at {e}; what does the wifi at {e} need; which password joins the network at {e}; what do guests of {e} type to get online; how do I join the network at {e}; what do I type for the internet at {e}
number of seats | place event route | number
n: seat count; seating capacity; count of seats; number of places
s: {e} [have] seats for {v}; {e} [seat] {v}; there are seats at {e} for {v}; {e} [offer] seats to {v}; at {e} the seats number {v}; the audience of {e} fills seats up to {v}; {e} was built with seats for {v}
q: how many seats does {e} [have]; how many people does {e} [seat]; how many seats are there at {e}; how many can sit at {e}; how many seats does {e} [offer]; how many seats was {e} built with
founding year | company shop town team place | year
n: year of foundation; year it was founded; foundation year; year of founding
s: {e} was founded in {v}; {e} was started in {v}; {e} [exist] since {v}; the history of {e} begins in {v}; {e} was set up in {v}; people founded {e} in {v}; {e} [go] back to {v}; {e} was established in {v}
q: when was {e} founded; when was {e} started; since when does {e} [exist]; in which year was {e} founded; when does the history of {e} begin; when was {e} set up; in which year was {e} established; how far does {e} [go] back
birthday | person pet | date
n: date of birth; birth date; day of birth; birthday date
s: {e} was born on {v}; {e} [celebrate] on {v}; {e} [have] a birthday on {v}; {e} came into the world on {v}; we bake a birthday cake for {e} on {v}; {e} [turn] a year older on {v}; the birth of {e} was on {v}; we celebrate the birth of {e} on {v}
q: when was {e} born; on what day was {e} born; when does {e} [celebrate]; when does {e} [have] a birthday; when do we bake a birthday cake for {e}; when does {e} [turn] a year older; when did {e} come into the world; on which date is {e} a year older
home town | person | town
n: town of origin; native town; home; birthplace
s: {e} [come] from {v}; {e} [live] in {v}; {e} grew up in {v}; {e} is from {v}; {e} was raised in {v}; {e} [call] home the town of {v}; {e} has a home in {v}; {e} [feel] at home in {v}; {e} has roots in {v}
q: where does {e} [come] from; in which town does {e} [live]; where did {e} grow up; where is {e} from; where was {e} raised; which town does {e} [call] home; in which town does {e} [feel] at home; which town is {e} from; where does {e} have roots
employer | person | company
n: company to work for; workplace; current employer; firm
s: {e} [work] for {v}; {e} [work] at {v}; {e} is employed by {v}; {e} [have] a job at {v}; {e} [earn] a living at {v}; {e} was hired by {v}; {e} [get] a salary from {v}; {e} took a job with {v}; the company that employs {e} is {v}
q: where does {e} [work]; for whom does {e} [work]; who does {e} [work] for; by whom is {e} employed; where does {e} [have] a job; who employs {e}; where does {e} [earn] a living; who hired {e}; which company employs {e}
favourite dish | person pet | pair
n: favourite food; favourite meal; best-loved dish; preferred dish
s: {e} [love] to eat {v}; {e} [like] to eat {v}; what {e} [eat] most gladly is {v}; {e} always [order] {v}; {e} [prefer] to eat {v}; for dinner {e} [want] {v}; the food {e} [like] best is {v}; {e} [enjoy] a dish called {v}; to make {e} happy cook {v}
q: what does {e} [love] to eat; what does {e} [like] to eat; what does {e} [eat] most gladly; what does {e} always [order]; which food does {e} [like] best; which dish does {e} [enjoy]; what does {e} [want] for dinner; what should I cook for {e}; what does {e} [prefer] to eat
locker | person | room
n: locker place; assigned locker; storage locker; place for belongings
s: {e} [keep] belongings in {v}; {e} [store] clothes in {v}; {e} [use] as a locker {v}; the belongings of {e} are in {v}; the things of {e} are stored in {v}; {e} got as a locker {v}; {e} [lock] away belongings in {v}
q: where does {e} [keep] belongings; where does {e} [store] clothes; which locker does {e} [use]; where are the belongings of {e}; where are the things of {e} stored; where does {e} [lock] away belongings; which locker did {e} get
badge number | person | code
n: number on the badge; badge code; staff badge number; badge
s: {e} [wear] a badge with {v}; the badge of {e} reads {v}; {e} [carry] a badge marked {v}; on the badge of {e} stands {v}; the badge of {e} bears {v}; {e} was given a badge with {v}; the guard knows {e} by the badge {v}
q: what does the badge of {e} read; which badge does {e} [wear]; what stands on the badge of {e}; which badge does {e} [carry]; what does the badge of {e} bear; by which badge does the guard know {e}
doctor | person pet | person
n: family doctor; physician; medical doctor; trusted doctor
s: {e} is treated by {v}; when ill {e} [see] {v}; {e} [go] to the doctor {v}; the doctor who treats {e} is {v}; {e} is a patient of {v}; {e} [have] as a doctor {v}; the one who looks after the health of {e} is {v}; {e} gets medicine from {v}
q: who treats {e}; by whom is {e} treated; which doctor does {e} [see]; which doctor does {e} [go] to; whose patient is {e}; who looks after the health of {e}; who gives {e} medicine; who does {e} [see] when ill
teacher | person team pet | person
n: personal teacher; tutor; instructor; trainer
s: {e} is taught by {v}; {e} [learn] from {v}; {e} [take] lessons with {v}; the one who teaches {e} is {v}; {e} is a student of {v}; {e} [have] lessons with {v}; lessons for {e} are given by {v}; {e} is instructed by {v}
q: who teaches {e}; by whom is {e} taught; who does {e} [learn] from; with whom does {e} [take] lessons; whose student is {e}; who gives lessons to {e}; who does {e} [have] lessons with; who instructs {e}
neighbour | person company shop | person
n: next-door neighbour; closest neighbour; neighbour across the hall; nearest neighbour
s: {e} [live] next door to {v}; next door to {e} lives {v}; {e} [share] a wall with {v}; beside {e} lives {v}; the one living next to {e} is {v}; {e} [have] as a neighbour {v}; in the house beside {e} lives {v}; on the other side of the wall from {e} lives {v}
q: who lives next door to {e}; next door to whom does {e} [live]; with whom does {e} [share] a wall; who lives beside {e}; who lives next to {e}; who does {e} [have] as a neighbour; who lives in the house beside {e}
salary | person | price
n: monthly pay; wage; monthly salary; pay
s: {e} [earn] {v}; {e} [make] at work {v}; {e} is paid {v}; for a month of work {e} gets {v}; {e} [receive] a pay of {v}; the work of {e} is paid with {v}; {e} [bring] home from work {v}; every month {e} earns {v}
q: how much does {e} [earn]; how much does {e} [make] at work; how much is {e} paid; what does {e} get for a month of work; how much pay does {e} [receive]; what does {e} [bring] home from work; what does {e} [earn]
height | person pet thing | length
n: body height; size; measured height; total height
s: {e} is {v} tall; {e} [measure] in height {v}; {e} [stand] as tall as {v}; {e} [reach] a height of {v}; from the ground up {e} [measure] {v}; {e} [grow] as tall as {v}; the top of {e} is at {v}
q: how tall is {e}; what height does {e} [reach]; how tall does {e} [stand]; what does {e} [measure] in height; how tall does {e} [grow]; what is {e} in height; how high is the top of {e}
nickname | person pet team town | word
n: pet name; short name; other name; name among friends
s: friends call {e} {v}; {e} is also called {v}; {e} is known as {v}; people call {e} {v}; everyone calls {e} by the name {v}; {e} [go] by the name {v}; {e} [answer] to the name {v}; {e} is nicknamed {v}; among friends {e} is called {v}
q: what do friends call {e}; what is {e} also called; as what is {e} known; what do people call {e}; by what name does everyone call {e}; what name does {e} [go] by; what name does {e} [answer] to; how is {e} nicknamed
partner | person | person
n: spouse; husband or wife; better half; life partner
s: {e} is married to {v}; {e} [love] the one and only {v}; {e} married {v}; the wedding of {e} was with {v}; {e} [share] a life with {v}; {e} is engaged to {v}; {e} [live] together with {v}; {e} got married to {v}
q: who is {e} married to; to whom is {e} married; who did {e} marry; with whom does {e} [share] a life; with whom does {e} [live] together; who is {e} engaged to; whom did {e} marry
best friend | person pet | person
n: closest friend; dearest friend; good friend; oldest friend
s: {e} is best friends with {v}; {e} [trust] as a friend {v}; the friend {e} [like] most is {v}; {e} [spend] free time with {v}; the closest to {e} of all friends is {v}; {e} [have] a best friend called {v}; {e} found a dear friend in {v}
q: who is {e} best friends with; which friend does {e} [like] most; who does {e} [trust] as a friend; with whom does {e} [spend] free time; who is the closest to {e} of all friends; in whom did {e} find a dear friend
email address | person company shop team | mail
n: email; mail address; electronic address; email contact
s: to write an email to {e} use {v}; {e} [read] email at {v}; {e} can be reached by email at {v}; you can email {e} at {v}; {e} [get] email at {v}; messages for {e} go to {v}; send email for {e} to {v}; {e} [answer] email from {v}
q: how can I email {e}; where do I send email for {e}; where does {e} [read] email; where does {e} [get] email; how do I write an email to {e}; where do messages for {e} go; how can {e} be reached by email
membership number | person | code
n: member number; number of the membership; member code; club number
s: {e} is a member under {v}; in the club {e} is listed under {v}; the membership of {e} runs under {v}; {e} joined the club as {v}; the club knows {e} as {v}; the membership card of {e} shows {v}; {e} [have] the club card {v}
q: under which number is {e} a member; how is {e} listed in the club; as what did {e} join the club; as what does the club know {e}; what does the membership card of {e} show; under what does the membership of {e} run
price | thing book pet | price
n: cost; selling price; full price; asking price
s: {e} [cost] {v}; {e} [sell] for {v}; {e} is sold for {v}; you pay for {e} {v}; they want for {e} {v}; to buy {e} you need {v}; {e} is on sale for {v}; the price tag of {e} says {v}; the shop asks for {e} {v}; {e} went on the market at {v}
q: how much does {e} [cost]; what does {e} [cost]; how much is {e}; for how much does {e} [sell]; how much do they want for {e}; what do I pay for {e}; how much do I need to buy {e}; what does the price tag of {e} say; how much does the shop ask for {e}
weight | thing pet person | weight
n: total weight; mass; exact weight; net weight
s: {e} [weigh] {v}; {e} [weigh] in at {v}; on the scale {e} shows {v}; {e} is as heavy as {v}; {e} [bring] to the scale {v}; the scale under {e} shows {v}; to lift {e} you have to lift {v}; {e} [have] a mass of {v}
q: how much does {e} [weigh]; how heavy is {e}; what does {e} [weigh]; what does the scale under {e} show; what does {e} show on the scale; what does {e} [bring] to the scale; what mass does {e} [have]
length | thing route | length
n: total length; full length; measured length; length from end to end
s: {e} is {v} long; {e} [measure] in length {v}; from end to end {e} measures {v}; {e} [stretch] over {v}; {e} [extend] over {v}; {e} [run] over a length of {v}; laid out, {e} is as long as {v}
q: how long is {e} from end to end; what does {e} [measure] in length; over what length does {e} [stretch]; what length does {e} [extend] over; how many metres long is {e}; what does {e} measure from end to end
maker | thing book | company
n: manufacturer; producer; making firm; company behind it
s: {e} was made by {v}; {e} is made by {v}; {e} is produced by {v}; the firm that makes {e} is {v}; {e} was built by {v}; {e} [come] from the workshop of {v}; {e} was manufactured by {v}; the company that produced {e} is {v}
q: who made {e}; who makes {e}; by whom is {e} made; who produces {e}; which firm makes {e}; who built {e}; from whose workshop does {e} [come]; who manufactured {e}; which company produced {e}
serial number | thing | code
n: number on the back; serial code; number of the device; series number
s: {e} [carry] the serial {v}; on the back of {e} stands {v}; {e} is registered under {v}; stamped on {e} is {v}; the bottom of {e} is marked {v}; the label on {e} reads {v}; engraved on {e} is {v}
q: which serial does {e} [carry]; what stands on the back of {e}; under what is {e} registered; what is stamped on {e}; what does the label on {e} read; how is the bottom of {e} marked; what is engraved on {e}
storage place | thing book | spot
n: place to keep it; keeping place; usual place; hiding place
s: {e} is kept {v}; {e} is stored {v}; I keep {e} {v}; I put {e} {v}; you can find {e} {v}; {e} [lie] {v}; I left {e} {v}; {e} is hidden {v}; we always keep {e} {v}; {e} was put away {v}; to find {e} look {v}
q: where is {e} kept; where is {e} stored; where do I keep {e}; where did I put {e}; where can I find {e}; where does {e} [lie]; where did I leave {e}; where is {e} hidden; where do we always keep {e}; where was {e} put away; where should I look for {e}
colour | thing pet team | pair
n: exact colour; shade; colour name; colouring
s: {e} is painted in {v}; {e} [have] the colour {v}; the paint of {e} is called {v}; {e} [come] in the colour {v}; {e} [shine] in {v}; they painted {e} in {v}; {e} is dyed in {v}; seen in daylight {e} has the colour {v}
q: what colour is {e}; in what colour is {e} painted; which colour does {e} [have]; in which colour did they paint {e}; which colour does {e} [come] in; in what colour does {e} [shine]; what is the paint of {e} called; in which colour is {e} dyed
start time | event | time
n: starting time; time of the start; beginning; start
s: {e} [start] at {v}; {e} [begin] at {v}; {e} [kick] off at {v}; the first minute of {e} is at {v}; {e} [get] going at {v}; they start {e} at {v}; be there for the start of {e} at {v}; {e} is scheduled to begin at {v}; the start of {e} was moved to {v}
q: when does {e} [start]; when does {e} [begin]; at what time does {e} [start]; at what time does {e} [begin]; when does {e} [kick] off; when does {e} [get] going; when do they start {e}; when do I have to be there for the start of {e}
end time | event | time
n: time of the end; finishing time; ending; end
s: {e} [end] at {v}; {e} [finish] at {v}; {e} is over at {v}; {e} [come] to an end at {v}; {e} [last] until {v}; the last minute of {e} is at {v}; they finish {e} at {v}; {e} is scheduled to end at {v}; people go home from {e} at {v}
q: when does {e} [end]; when does {e} [finish]; at what time is {e} over; when does {e} [come] to an end; until when does {e} [last]; when do they finish {e}; when do people go home from {e}; at what time does {e} [end]
date | event project | date
n: day; exact date; calendar date; scheduled day
s: {e} is on {v}; {e} [take] place on {v}; {e} is held on {v}; {e} is planned for {v}; they hold {e} on {v}; the day of {e} is {v}; {e} was moved to {v}; {e} is in the calendar for {v}; keep free for {e} the day {v}; {e} [fall] on {v}
q: on which day is {e}; when does {e} [take] place; on what date is {e} held; for when is {e} planned; on what day do they hold {e}; to which day was {e} moved; on which date does {e} [fall]; which day should I keep free for {e}
venue | event team | place
n: place of the event; location; hall; site
s: {e} [take] place at {v}; {e} is held at {v}; {e} [happen] at {v}; they hold {e} at {v}; to see {e} go to {v}; {e} was moved to {v}; for {e} they rented {v}; people gather for {e} at {v}; {e} is staged at {v}
q: where does {e} [take] place; where is {e} held; where does {e} [happen]; where do they hold {e}; where do I go to see {e}; where was {e} moved; where do people gather for {e}; what did they rent for {e}; where is {e} staged
speaker | event | person
n: main speaker; guest speaker; keynote speaker; person on stage
s: {e} [feature] a talk by {v}; the talk at {e} is given by {v}; at {e} the one who speaks is {v}; on stage at {e} speaks {v}; {e} [open] with a speech by {v}; the speech at {e} comes from {v}; they invited to speak at {e} a certain {v}
q: who speaks at {e}; who gives the talk at {e}; by whom is the talk at {e} given; who speaks on stage at {e}; whose speech does {e} [open] with; who was invited to speak at {e}; who holds the speech at {e}
ticket price | event route place | price
n: price of a ticket; cost of a ticket; fare; ticket cost
s: a ticket for {e} costs {v}; tickets for {e} cost {v}; tickets to {e} go for {v}; you pay for a ticket to {e} {v}; {e} [sell] tickets at {v}; for a ticket to {e} they want {v}; one ticket for {e} is {v}; to ride or see {e} buy a ticket for {v}
q: how much is a ticket for {e}; how much does a ticket for {e} cost; what do tickets for {e} cost; what do I pay for a ticket to {e}; at what price does {e} [sell] tickets; how much do they want for a ticket to {e}; what is the ticket for {e}
number of guests | event hotel | number
n: guest count; count of guests; number of visitors; attendance
s: {e} [expect] guests numbering {v}; guests coming to {e} number {v}; {e} is attended by {v}; {e} was visited by {v}; the guest list of {e} counts {v}; at {e} the guests number {v}; {e} [have] room for {v}; the crowd at {e} counted {v}
q: how many guests does {e} [expect]; how many guests come to {e}; how many people attend {e}; how many people visited {e}; how many are on the guest list of {e}; how many guests are at {e}; for how many does {e} [have] room; how big is the crowd at {e}
organiser | event team project | person
n: main organiser; planner; host; person who plans it
s: {e} is organised by {v}; {e} is planned by {v}; the one who organises {e} is {v}; the person planning {e} is {v}; {e} is hosted by {v}; everything at {e} is arranged by {v}; {e} was put together by {v}; the plans for {e} are made by {v}
q: who organises {e}; who plans {e}; by whom is {e} organised; who hosts {e}; who is planning {e}; who arranges everything at {e}; who put {e} together; who makes the plans for {e}
departure time | route | time
n: time of departure; departure; leaving time; hour of departure
s: {e} [leave] at {v}; {e} [depart] at {v}; {e} [set] off at {v}; {e} [start] its trip at {v}; {e} [pull] out at {v}; to catch {e} be there by {v}; {e} is due to leave at {v}; {e} [go] at {v}; {e} is scheduled to depart at {v}
q: when does {e} [leave]; when does {e} [depart]; at what time does {e} [leave]; when does {e} [set] off; when does {e} [start] its trip; when does {e} [pull] out; when do I have to be there to catch {e}; when is {e} due to leave; when does {e} [go]
arrival time | route | time
n: time of arrival; arrival; hour of arrival; expected arrival
s: {e} [arrive] at {v}; {e} [get] in at {v}; {e} [come] in at {v}; {e} [reach] its goal at {v}; {e} is due to arrive at {v}; to meet {e} be there at {v}; {e} [pull] in at {v}; {e} [end] its trip at {v}; passengers of {e} arrive at {v}
q: when does {e} [arrive]; when does {e} [get] in; at what time does {e} [arrive]; when does {e} [come] in; when does {e} [reach] its goal; when is {e} due to arrive; when does {e} [pull] in; when does {e} [end] its trip; when should I be there to meet {e}
platform | route | code
n: platform number; track; platform code; boarding platform
s: {e} [leave] from platform {v}; {e} [stop] at platform {v}; {e} [wait] at platform {v}; passengers board {e} at platform {v}; to board {e} go to platform {v}; {e} was moved to platform {v}; {e} [use] track {v}; look for {e} at platform {v}
q: from which platform does {e} [leave]; at which platform does {e} [stop]; where does {e} [wait]; where do passengers board {e}; to which platform was {e} moved; which track does {e} [use]; at which platform should I look for {e}; which platform do I go to for {e}
captain | route team | person
n: leader on board; person at the helm; commanding captain; first captain
s: {e} is commanded by {v}; {e} is captained by {v}; at the helm of {e} stands {v}; {e} is steered by {v}; {e} is led by {v}; the one steering {e} is {v}; the one who commands {e} is {v}; {e} [follow] the orders of {v}
q: who commands {e}; who captains {e}; who stands at the helm of {e}; by whom is {e} steered; who steers {e}; who leads {e}; whose orders does {e} [follow]; by whom is {e} commanded
travel time | route | duration
n: length of the trip; duration; time on the way; journey time
s: {e} [take] {v}; {e} [travel] for {v}; the trip with {e} takes {v}; the journey on {e} lasts {v}; {e} [need] for the trip {v}; {e} is on the way for {v}; you sit in {e} for {v}; on {e} you travel {v}
q: how long does {e} [take]; how long does {e} [travel]; how long is the trip with {e}; how long does the journey on {e} last; how long does {e} [need] for the trip; how long is {e} on the way; how long do I sit in {e}; for how long do you travel on {e}
destination | route person | town
n: final stop; goal of the trip; place of arrival; terminus
s: {e} [travel] to {v}; {e} [go] to {v}; {e} [head] for {v}; {e} is bound for {v}; the trip of {e} ends in {v}; {e} is on the way to {v}; {e} [run] as far as {v}; the last stop of {e} is {v}; {e} will get off at {v}
q: where does {e} [travel] to; where does {e} [go]; where does {e} [head]; where is {e} bound for; where does the trip of {e} end; where is {e} on the way to; how far does {e} [run]; what is the last stop of {e}; to which town does {e} [travel]
budget | project event team company | price
n: total budget; money available; sum set aside; funds
s: {e} [have] money amounting to {v}; {e} may spend {v}; {e} is allowed to spend {v}; the money for {e} amounts to {v}; they set aside for {e} {v}; {e} was given funds of {v}; {e} [run] on funds of {v}; {e} is funded with {v}; to pay for {e} there are {v}
q: how much money does {e} [have]; how much may {e} spend; how much is {e} allowed to spend; how much money is there for {e}; how much did they set aside for {e}; on what funds does {e} [run]; with how much is {e} funded; what funds was {e} given
deadline | project book team | date
n: due date; final date; last day; date of delivery
s: {e} is due on {v}; {e} must be finished by {v}; {e} has to be ready by {v}; {e} has to be done by {v}; we need to deliver {e} by {v}; work on {e} must stop on {v}; {e} must be handed in by {v}; the last day for {e} is {v}; time for {e} runs out on {v}
q: when is {e} due; by when must {e} be finished; by when does {e} have to be ready; by when does {e} have to be done; by when do we need to deliver {e}; when must {e} be handed in; what is the last day for {e}; when does time for {e} run out; when must work on {e} stop
leader | project company | person
n: head; person leading it; team leader; director
s: {e} is led by {v}; {e} is headed by {v}; the one who leads {e} is {v}; the person leading {e} is {v}; at the head of {e} stands {v}; {e} is directed by {v}; {e} [have] as its head {v}; everyone in {e} reports to {v}; leading {e} is {v}
q: who leads {e}; who heads {e}; by whom is {e} led; who is leading {e}; who stands at the head of {e}; who directs {e}; who does {e} [have] as its head; to whom does everyone in {e} report; who is {e} headed by
code name | project thing person event | pair
n: secret name; cover name; code word; hidden name
s: {e} is code-named {v}; {e} [hide] behind the name {v}; in secret {e} is called {v}; the secret papers call {e} {v}; {e} [run] under the cover {v}; insiders call {e} {v}; in code {e} is {v}; {e} was given the secret name {v}
q: how is {e} code-named; behind which name does {e} [hide]; what is {e} called in secret; what do the secret papers call {e}; under which cover does {e} [run]; what do insiders call {e}; what is {e} in code; which secret name was {e} given
client | project company shop | company
n: customer; main client; paying customer; client firm
s: {e} is done for {v}; {e} is paid for by {v}; {e} [work] for the client {v}; the firm that pays for {e} is {v}; the customer behind {e} is {v}; {e} was ordered by {v}; {e} [deliver] to the customer {v}; the bill for {e} goes to {v}
q: for whom is {e} done; who pays for {e}; for which client does {e} [work]; which firm pays for {e}; which customer is behind {e}; who ordered {e}; to which customer does {e} [deliver]; to whom does the bill for {e} go
office | person project team company | room
n: office room; working room; place in the building; room to work in
s: {e} [work] in {v}; {e} [sit] in {v}; {e} is based in {v}; {e} can be visited in {v}; you find {e} working in {v}; {e} moved its work to {v}; {e} [have] a desk in {v}; {e} [use] as an office {v}; to see {e} knock at {v}
q: in which room does {e} [work]; where does {e} [sit]; in which room is {e} based; in which room can {e} be visited; in which room do I find {e} working; where does {e} [have] a desk; which room does {e} [use] as an office; where do I knock to see {e}
vet | pet | person
n: animal doctor; veterinarian; vet in charge; vet on call
s: {e} [see] the vet {v}; {e} is examined by {v}; the vet who checks {e} is {v}; we bring {e} to the vet {v}; {e} gets its shots from {v}; the vet of {e} is called {v}; the one who vaccinates {e} is {v}
q: which vet does {e} [see]; who examines {e}; by whom is {e} examined; which vet checks {e}; to which vet do we bring {e}; who gives {e} its shots; what is the vet of {e} called; who vaccinates {e}
chip number | pet thing | code
n: number of the chip; chip code; chip; chip identification
s: {e} [carry] a chip with {v}; the chip of {e} says {v}; the chip in {e} reads {v}; {e} is chipped with {v}; scanned, {e} shows the chip {v}; under the skin of {e} the chip reads {v}; the scanner reads from the chip of {e} {v}
q: what does the chip of {e} say; what does the chip in {e} read; with what is {e} chipped; which chip does {e} [carry]; what does the scanner read from the chip of {e}; which chip does {e} show when scanned
headquarters | company team | town
n: main office; head office; seat; home base
s: {e} is based in {v}; {e} [have] its headquarters in {v}; {e} is at home in {v}; {e} [sit] in the town of {v}; {e} is run from {v}; the main office of {e} is in {v}; {e} moved its headquarters to {v}; {e} [operate] from {v}
q: where is {e} based; where does {e} [have] its headquarters; where is {e} at home; in which town does {e} [sit]; from where is {e} run; where is the main office of {e}; where did {e} move its headquarters; from where does {e} [operate]
number of employees | company shop hotel | number
n: staff size; headcount; size of the staff; number of workers
s: {e} [employ] a staff of {v}; {e} [give] work to {v}; the staff of {e} counts {v}; {e} [have] employees numbering {v}; the people working at {e} number {v}; on the payroll of {e} are {v}; {e} [pay] wages to {v}; {e} grew to a staff of {v}
q: how many people does {e} [employ]; to how many does {e} [give] work; how many does the staff of {e} count; how many employees does {e} [have]; how many people work at {e}; how many are on the payroll of {e}; to how many does {e} [pay] wages; how big is the staff of {e}
account number | company person shop | code
n: bank account; bank account number; number of the account; account
s: money for {e} goes to the account {v}; {e} [bank] under {v}; to pay {e} transfer to {v}; {e} [have] the account {v}; {e} [receive] payments at the account {v}; the bank lists {e} under {v}; {e} opened an account with the number {v}
q: to which account does money for {e} go; under what does {e} [bank]; where do I transfer to pay {e}; which account does {e} [have]; at which account does {e} [receive] payments; under what does the bank list {e}; which account did {e} open
population | town | number
n: number of people; number of inhabitants; count of residents; head of population
s: {e} [have] inhabitants numbering {v}; the people living in {e} number {v}; {e} is home to {v}; {e} [count] residents up to {v}; in {e} live about {v}; the residents of {e} number {v}; the last count in {e} found {v}; {e} grew to {v}
q: how many people live in {e}; how many inhabitants does {e} [have]; to how many is {e} home; how many residents does {e} [count]; how many live in {e}; how many residents are there in {e}; how many people did the last count in {e} find
mayor | town | person
n: town mayor; elected mayor; head of the town; current mayor
s: {e} is governed by {v}; {e} elected as mayor {v}; the one who governs {e} is {v}; the people of {e} elected {v}; the town hall of {e} is run by {v}; {e} [have] a mayor called {v}; the mayor in {e} goes by {v}; voters in {e} chose {v}
q: who governs {e}; who did {e} elect as mayor; by whom is {e} governed; who did the people of {e} elect; who runs the town hall of {e}; which mayor does {e} [have]; who is mayor in {e}; who did voters in {e} choose
river | town place | word
n: name of the river; nearby river; local river; river nearby
s: {e} [lie] on the river {v}; the river that runs through {e} is the {v}; through {e} flows the {v}; {e} was built on the river {v}; the water in {e} comes from the {v}; the bridge in {e} crosses the {v}; the boats in {e} sail on the {v}
q: on which river does {e} [lie]; which river runs through {e}; which river flows through {e}; on which river was {e} built; from which river does the water in {e} come; which river does the bridge in {e} cross; which river do the boats in {e} sail on
postcode | town company hotel | code
n: postal code; zip code; code for letters; post code
s: letters to {e} carry the postcode {v}; mail to {e} needs the code {v}; {e} [have] the postal code {v}; the post finds {e} under {v}; to write to {e} put on the envelope {v}; on the envelope for {e} write {v}; the post sorts letters for {e} under {v}
q: which postcode do letters to {e} carry; which code does mail to {e} need; which postal code does {e} [have]; under what does the post find {e}; what do I put on the envelope for {e}; under which code does the post sort letters for {e}; what do I write on the envelope to {e}
altitude | town place | length
n: height above the sea; elevation; level above the sea; altitude above the sea
s: {e} [lie] above the sea by {v}; {e} is above sea level by {v}; {e} [sit] at an elevation of {v}; above the sea {e} is at {v}; {e} [rise] above the sea to {v}; {e} [reach] above sea level {v}; the climb from the sea up to {e} is {v}
q: how high does {e} [lie]; how far above the sea does {e} [lie]; how high above sea level is {e}; at what elevation does {e} [sit]; how high does {e} [rise] above the sea; how high is {e} above the sea; how long is the climb from the sea up to {e}
room rate | hotel | price
n: price of a room; nightly rate; price per night; cost of a night
s: a night at {e} costs {v}; a room at {e} costs {v}; {e} [charge] for a night {v}; to sleep at {e} you pay {v}; one night in {e} is {v}; rooms at {e} go for {v}; guests of {e} pay for a night {v}; {e} [rent] rooms for {v}; for a bed at {e} they ask {v}
q: how much is a night at {e}; how much does a room at {e} cost; how much does {e} [charge] for a night; what do I pay to sleep at {e}; what does one night in {e} cost; for how much does {e} [rent] rooms; what do guests of {e} pay for a night; how much is a bed at {e}
check-in time | hotel | time
n: time of check-in; check-in; arrival hour for guests; check-in hour
s: guests check in at {e} from {v}; you can check in at {e} from {v}; {e} [hand] out keys from {v}; check-in at {e} starts at {v}; rooms at {e} are ready at {v}; {e} [welcome] guests from {v}; the desk at {e} checks guests in from {v}
q: when can I check in at {e}; from when can guests check in at {e}; when does {e} [hand] out keys; when does check-in at {e} start; when are rooms at {e} ready; from when does {e} [welcome] guests; when does the desk at {e} check guests in
check-out time | hotel | time
n: time of check-out; check-out; leaving hour for guests; check-out hour
s: guests check out of {e} by {v}; you have to check out of {e} by {v}; {e} [want] its keys back by {v}; check-out at {e} is at {v}; rooms at {e} must be empty by {v}; guests must leave their room at {e} by {v}; the desk at {e} checks guests out until {v}
q: when do I have to check out of {e}; by when do guests check out of {e}; when does {e} [want] its keys back; when is check-out at {e}; by when must rooms at {e} be empty; when must guests leave their room at {e}; until when does the desk at {e} check guests out
training time | team | time
n: practice time; time of practice; hour of training; practice
s: {e} [train] at {v}; {e} [practise] at {v}; {e} [meet] to practise at {v}; practice for {e} begins at {v}; training with {e} begins at {v}; the coach expects {e} for practice at {v}; the members of {e} train at {v}; {e} [hold] its practice at {v}
q: when does {e} [train]; when does {e} [practise]; when does {e} [meet] to practise; when does practice for {e} begin; when does training with {e} begin; when does the coach expect {e} for practice; when do the members of {e} train; when does {e} [hold] its practice
sponsor | team event project | company
n: main sponsor; financial sponsor; backer; supporting company
s: {e} is sponsored by {v}; {e} is supported by {v}; {e} [get] its money from {v}; the company that sponsors {e} is {v}; the shirts of {e} carry the name of {v}; {e} is backed by {v}; money for {e} comes from {v}; {e} [thank] its backer {v}
q: who sponsors {e}; by whom is {e} sponsored; who supports {e}; from whom does {e} [get] its money; which company sponsors {e}; whose name do the shirts of {e} carry; who backs {e}; from whom does money for {e} come
author | book | person
n: writer; person who wrote it; name on the cover; book author
s: {e} was written by {v}; the one who wrote {e} is {v}; {e} is a work of {v}; {e} [come] from the pen of {v}; on the cover of {e} stands {v}; the text of {e} is by {v}; {e} was published by the writer {v}; readers of {e} admire {v}
q: who wrote {e}; by whom was {e} written; whose work is {e}; from whose pen does {e} [come]; who stands on the cover of {e}; by whom is the text of {e}; which writer published {e}; whom do readers of {e} admire
number of pages | book | number
n: page count; page number in all; length in pages; count of pages
s: {e} [have] pages numbering {v}; {e} [run] to a page count of {v}; the pages of {e} number {v}; {e} [fill] pages up to {v}; the last page of {e} is {v}; {e} ends on page {v}; to finish {e} you read pages up to {v}
q: how many pages does {e} [have]; how many pages are there in {e}; how many pages long is {e}; to how many pages does {e} [run]; how many pages does {e} [fill]; what is the last page of {e}; on which page does {e} end; how many pages do you read to finish {e}
age | thing pet person place | duration
n: exact age; total age; age in all; age so far
s: {e} is {v} old; {e} [have] an age of {v}; {e} [exist] for {v}; {e} has lived for {v}; {e} has been around for {v}; {e} reached an age of {v}; since {e} came to be it has been {v}; {e} grew as old as {v}
q: how old is {e}; what age does {e} [have]; for how long does {e} [exist]; how long has {e} lived; how long has {e} been around; what age did {e} reach; how old did {e} grow
password | person project thing book | pair
n: secret word; login; secret password; pass phrase
s: to log in as or to {e} type {v}; {e} [use] the password {v}; {e} is protected with {v}; {e} [open] with the secret {v}; the login of {e} needs {v}; to get into the files of {e} type {v}; {e} is locked with {v}; the files of {e} open with {v}
q: how do I log in to {e}; which password does {e} [use]; with what is {e} protected; what secret does {e} [open] with; what does the login of {e} need; how do I get into the files of {e}; with what is {e} locked; what do the files of {e} open with
seat | person | room
n: seat number; reserved seat; place to sit; booked seat
s: {e} [have] a seat in {v}; a seat is reserved for {e} in {v}; {e} booked a seat in {v}; {e} was seated in {v}; they reserved for {e} a seat in {v}; the ticket seats {e} in {v}; {e} may take a seat in {v}
q: where does {e} [have] a seat; where is a seat reserved for {e}; where did {e} book a seat; where was {e} seated; which seat did they reserve for {e}; where does the ticket seat {e}; where may {e} take a seat
flight number | person team route | code
n: number of the flight; flight code; flight; plane number
s: {e} [fly] with {v}; {e} [take] the flight {v}; {e} is booked on the flight {v}; {e} [arrive] by the flight {v}; the plane of {e} is {v}; {e} [board] the plane {v}; {e} [come] in on the flight {v}; the flight of {e} is {v}
q: with which flight does {e} [fly]; which flight does {e} [take]; on which flight is {e} booked; by which flight does {e} [arrive]; which plane does {e} [board]; which plane is that of {e}; on which flight does {e} [come] in
delivery time | shop company thing | duration
n: time for delivery; delivery period; waiting time; time until delivery
s: {e} [deliver] within {v}; delivery from {e} takes {v}; to be delivered, {e} needs {v}; for {e} you wait {v}; orders with {e} arrive after {v}; {e} [come] after a wait of {v}; {e} is delivered within {v}; the wait for {e} is {v}
q: how long does delivery from {e} take; how long do I wait for {e}; within what time is {e} delivered; after how long do orders with {e} arrive; after what wait does {e} [come]; how long is the wait for {e}; how fast is delivery with {e}; how long does {e} [need] to be delivered
"""


@dataclass(frozen=True, eq=False)
class Relation:
    """One attribute. `name` is its canonical noun; no other relation has its nouns, statements and questions."""

    name: str
    kinds: tuple[str, ...]
    value_type: str
    nouns: tuple[str, ...]
    statements: tuple[str, ...]
    questions: tuple[str, ...]


def _parse(text: str) -> list[Relation]:
    relations = []
    lines = [line for line in text.strip().splitlines() if line]
    for head, nouns, statements, questions in zip(*[iter(lines)] * 4, strict=True):
        name, kinds, value_type = (part.strip() for part in head.split("|"))
        parts = [tuple(p.strip() for p in line[2:].split(";")) for line in (nouns, statements, questions)]
        relations.append(Relation(name, tuple(kinds.split()), value_type, (name, *parts[0]), parts[1], parts[2]))
    return relations


RELATIONS: list[Relation] = _parse(_TEXT)
BY_KIND: dict[str, list[Relation]] = {}
for _relation in RELATIONS:
    for _kind in _relation.kinds:
        BY_KIND.setdefault(_kind, []).append(_relation)
