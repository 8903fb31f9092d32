"""What tables list: a kind of row, the columns that it can have, and what people ask about each of them.

    # name | kind of row | its headers | how a question names a row | noun of a row | titles
    name: headers | kind of value | questions | reverse questions

Kinds of values: a type of `values`, "#low-high" for whole numbers, "=a/b/c" for a choice, "$" for amounts, "@" for times of day.
{e} is the row's name, {E} the same as a question names it, {v} a value of the column. Questions by the headers are added.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Column:
    name: str
    headers: tuple[str, ...]
    kind: str
    asks: tuple[str, ...]
    reverse: tuple[str, ...]


@dataclass(frozen=True)
class Domain:
    name: str
    kind: str
    headers: tuple[str, ...]
    naming: str
    noun: str
    titles: tuple[str, ...]
    columns: tuple[Column, ...]


_TEXT = """
# staff | given | name, Name, employee, who, person | {e} | who | Staff list; Staff; Our team; Employees; Who sits where; Team
room: room, Room, office, Rm, room no. | #100-399 | which room is {e} in; where does {e} sit; where do I find {e}; which room does {e} work in; where is {e}; where is {e}'s office; what room is {e} in | who is in room {v}; who sits in {v}; who works in room {v}; who is in {v}; whose office is {v}
phone number: phone, Phone, tel, phone number, Tel., mobile, telephone | phone | how can I reach {e}; how do I call {e}; which number do I dial for {e}; what number does {e} have; what is {e}'s phone number; what's {e}'s number | who has the number {v}; whose number is {v}; whose phone number is {v}
extension: ext, ext., extension, Ext | #1000-9999 | what is {e}'s extension; which extension does {e} have; which extension do I dial for {e}; what extension is {e} on | who has extension {v}; whose extension is {v}; who is on extension {v}
email: email, e-mail, Email, mail, mail address | mail | what is {e}'s email; where do I write to {e}; what is {e}'s mail address; how do I email {e}; which address do I write to for {e} | whose email is {v}; who has the address {v}
department: department, dept, Dept., team, group, division | =sales/marketing/support/finance/legal/IT/HR/design/research/logistics/purchasing/engineering/security/operations | which department is {e} in; what team is {e} in; where does {e} work; what department does {e} work in | who works in {v}; who is in {v}; who belongs to {v}
role: role, Role, job, title, position, function | job | what does {e} do; what is {e}'s job; what's {e}'s role; what does {e} work as | who is the {v}; who works as a {v}; who is our {v}
floor: floor, Floor, level | #1-30 | which floor is {e} on; what floor is {e} on; on which floor does {e} sit | who is on floor {v}; who sits on floor {v}
desk: desk, Desk, seat, place | code | which desk does {e} sit at; where does {e} sit; what desk is {e} at; which desk is {e}'s | who sits at {v}; whose desk is {v}
manager: manager, boss, reports to, supervisor, line manager | given | who is {e}'s manager; who does {e} report to; who is the boss of {e}; who is {e}'s boss | who reports to {v}
start date: started, start date, since, joined, hired | date | when did {e} start; when did {e} join; since when does {e} work here; when was {e} hired | who started on {v}; who joined on {v}
days off: days off, vacation, holiday, leave, holidays left | #1-40 | how many days off does {e} have; how many holidays does {e} have left; how much vacation does {e} have | who has {v} days off
# contacts | given | name, Name, contact, who | {e} | who | Contacts; Phone list; Address book; Phone numbers; My contacts; Emergency contacts
phone number: phone, number, tel, mobile, cell, phone number | phone | how can I reach {e}; what's {e}'s number; what is {e}'s phone number; which number do I call for {e}; how do I phone {e}; what number is {e} on | whose number is {v}; who has the number {v}; who can I reach at {v}
email: email, mail, e-mail | mail | what's {e}'s email; what is {e}'s mail address; where can I mail {e} | whose mail is {v}
address: address, Address, street, home | address | where does {e} live; what is {e}'s address; what address does {e} have; where is {e}'s home | who lives at {v}
birthday: birthday, born, date of birth, bday, DOB | date | when is {e}'s birthday; when was {e} born; when does {e} have birthday; what is {e}'s date of birth | whose birthday is {v}; who was born on {v}
city: city, town, lives in, City, place | town | where does {e} live; which city does {e} live in; what town is {e} in; in which city is {e} | who lives in {v}; who is in {v}; who is from {v}
age: age, Age, years | #3-95 | how old is {e}; what is {e}'s age; what age is {e} | who is {v} years old; who is {v}
company: company, employer, firm, works at | company | where does {e} work; which company is {e} with; who does {e} work for; who is {e}'s employer | who works at {v}; who works for {v}
job: job, occupation, profession, works as | job | what does {e} do; what is {e}'s job; what's {e}'s profession; what does {e} do for a living | who is a {v}; who works as a {v}
hobby: hobby, likes, interests, free time | =chess/climbing/pottery/fishing/knitting/sailing/gardening/cycling/painting/singing/baking/dancing/archery/yoga/running | what is {e}'s hobby; what does {e} like; what does {e} do in their free time | who likes {v}; whose hobby is {v}
relation: relation, who, is my, relationship | =sister/uncle/neighbour/doctor/boss/cousin/dentist/plumber/teacher/landlord/babysitter/aunt | who is {e}; how do I know {e}; how is {e} related to me | who is my {v}; what is my {v} called
# prices | thing | item, Item, product, article, what | the {e} | item | Price list; Prices; Shop; Products; Items; Catalogue; For sale
price: price, Price, cost, EUR, costs, unit price, $ | $ | how much is the {e}; how much does the {e} cost; what does the {e} cost; what's the price of the {e}; how expensive is the {e}; how much for the {e}; how much do I pay for the {e}; how much is a {e} | what costs {v}; which item costs {v}; what can I get for {v}
stock: stock, in stock, left, available, count, qty | #2-500 | how many {p} are in stock; how many {p} are left; what is the stock of the {e}; how many {p} do we have |
code: code, SKU, article no., item number, part no. | code | what is the code of the {e}; which code does the {e} have; what's the article number of the {e} | which item has the code {v}; what is {v}
colour: colour, color, Colour | colour | what colour is the {e}; which colour does the {e} have; what color is the {e} | what is {v}; which item is {v}
weight: weight, kg, Weight | weight | how heavy is the {e}; how much does the {e} weigh; what does the {e} weigh | what weighs {v}
supplier: supplier, vendor, maker, from, brand | company | who supplies the {e}; who makes the {e}; where does the {e} come from; who is the supplier of the {e}; which company sells the {e} | what comes from {v}; what does {v} supply
aisle: aisle, shelf, where, location, rack | code | which aisle is the {e} in; where is the {e}; where do I find the {e}; on which shelf is the {e} | what is in aisle {v}; what is on shelf {v}
# order | things | item, article, product, what, Item | {e} | item | Order; Purchase order; Our order; Delivery; Inventory; Stock; Packing list; Equipment
quantity: qty, quantity, count, Qty, number, amount, pcs, ordered | #2-400 | how many {e} were ordered; how many {e} are there; how many {e} do we have; how many {e} did we order; how many {e} are on the list; how many {e} do we need | what did we order {v} of; which item has quantity {v}
price: price, cost, each, unit price, EUR | $ | how much are the {e}; what do the {e} cost; how much do the {e} cost; what is the price of the {e}; how expensive are the {e} | what costs {v}
status: status, state, Status | =shipped/delivered/pending/cancelled/on its way/back-ordered/paid/returned/lost/packed | what is the status of the {e}; have the {e} arrived; where are the {e}; what happened to the {e} | what was {v}; what is {v}; which item is {v}
delivery: delivery, arrives, due, expected, ETA | daydate | when do the {e} arrive; when will the {e} come; when are the {e} delivered; what is the delivery date of the {e} | what arrives on {v}; what comes on {v}; what is due on {v}
place: location, place, stored in, where, room | storage | where are the {e}; where are the {e} kept; where do I find the {e}; where did we put the {e} | what is in {v}; what is stored in {v}
owner: owner, ordered by, for, belongs to, who | given | who ordered the {e}; who are the {e} for; whose are the {e}; who needs the {e} | what did {v} order; what is for {v}
# rota | day | day, Day, date, when | {e} | day | Rota; On-call rota; Shifts; Duty roster; Schedule; On call this week; Week
on call: on call, on-call, duty, who, person, name, responsible | given | who is on call on {e}; who is on call {e}; who has duty on {e}; who's on duty on {e}; who works on {e}; who is responsible on {e}; who is it on {e} | when is {v} on call; on which day is {v} on call; which day does {v} have duty; what day does {v} work; when does {v} work
backup: backup, second, substitute, stand-in, deputy | given | who is the backup on {e}; who stands in on {e}; who is the substitute on {e} | when is {v} the backup; on which day is {v} the substitute
shift: shift, hours, time, from-to | =6-14/14-22/22-6/8-16/9-17/early/late/night/7-15/10-18/12-20 | what is the shift on {e}; which shift is it on {e}; what are the hours on {e} |
place: place, site, where, location | town | where is the work on {e}; where are we on {e}; which site is it on {e} | on which day are we in {v}; when are we in {v}
driver: driver, drives, car | given | who drives on {e}; who is the driver on {e}; who is driving on {e} | when does {v} drive; which day does {v} drive
cleaning: cleaning, kitchen, dishes, cleans | given | who cleans on {e}; who does the dishes on {e}; who has kitchen duty on {e} | when does {v} clean; which day does {v} do the dishes
# meals | day | day, Day, when | {e} | day | Menu of the week; Meal plan; Meals; What we eat; Canteen
lunch: lunch, Lunch, noon | dish | what's for lunch on {e}; what is for lunch on {e}; what do we eat on {e} at noon; what's the lunch on {e} | on which day is {v} for lunch; when do we have {v}
dinner: dinner, Dinner, evening, meal, supper | dish | what's for dinner on {e}; what do we have for dinner on {e}; what is for dinner {e}; what do we eat on {e} evening; what's on the menu on {e} | when do we have {v}; which day is {v}; on what day is there {v}
cook: cook, who cooks, chef, by | given | who cooks on {e}; who is cooking on {e}; who makes dinner on {e}; whose turn is it to cook on {e} | when does {v} cook; on which day does {v} cook
dessert: dessert, sweet, pudding | dish | what's for dessert on {e}; what is the dessert on {e} | when do we have {v}
# trains | line | train, Train, line, bus, no. | the {e} | train | Timetable; Departures; Train times; Bus times; Connections; Trains
departure: departs, departure, dep, Dep, leaves, off | @ | when does the {e} leave; what time does the {e} leave; when does the {e} depart; at what time does the {e} go; when is the {e}; departure of the {e} | which train leaves at {v}; what leaves at {v}; which one goes at {v}
arrival: arrives, arrival, arr, Arr, in | @ | when does the {e} arrive; what time does the {e} get there; when does the {e} get in; at what time does the {e} arrive | which train arrives at {v}; what gets in at {v}
platform: platform, track, Track, plat., gleis, bay | #1-28 | which platform does the {e} leave from; what platform is the {e}; from which track does the {e} go; which track is the {e} on; where does the {e} leave | what leaves from platform {v}; which train is on track {v}; which train goes from platform {v}
destination: to, destination, direction, towards, To | town | where does the {e} go; where does the {e} go to; what is the destination of the {e}; which city does the {e} go to | which train goes to {v}; what goes to {v}; how do I get to {v}; which one goes to {v}
delay: delay, late, Delay | =5 min/10 min/12 min/none/25 min/40 min/cancelled/3 min/on time/1 h | how late is the {e}; how much delay does the {e} have; is the {e} late; what is the delay of the {e} |
fare: fare, price, ticket | $ | how much is the {e}; what does a ticket for the {e} cost; what is the fare of the {e} |
# flights | flight | flight, Flight, no., flight no. | flight {e} | flight | Flights; Departures; Airport board; Our flights; Arrivals
departure: departs, departure, time, dep, leaves, takes off | @ | when does flight {e} leave; what time is flight {e}; when does {e} take off; what time does {e} depart; when is {e} | which flight leaves at {v}; what takes off at {v}
gate: gate, Gate | gatecode | which gate is {e} at; what is the gate of flight {e}; from which gate does {e} leave; which gate do I need for {e}; what gate is flight {e} | which flight leaves from gate {v}; what leaves from {v}
destination: to, destination, going to, city, To | town | where does {e} go; where does flight {e} fly to; what is the destination of {e} | which flight goes to {v}; what is the flight to {v}
status: status, remarks, info | =boarding/delayed/cancelled/on time/landed/gate closed/departed/diverted/last call | what is the status of {e}; what's up with flight {e}; is flight {e} on time; has {e} left | which flight is {v}; which flight was {v}
terminal: terminal, Terminal, T | #1-9 | which terminal is {e}; what terminal does flight {e} use; from which terminal does {e} go | which flight leaves from terminal {v}
seat: seat, Seat | seatcode | what is my seat on {e}; where do I sit on flight {e}; which seat do I have on {e} | on which flight do I have seat {v}
# services | service | service, name, app, Service, container, component | {e} | service | Services; Our services; Deployments; Containers; Microservices; docker ps; Ports
port: port, Port, listen, exposed port | #1024-9999 | which port does {e} use; what port is {e} on; on which port does {e} run; which port does {e} listen on; what's the port of {e}; where does {e} listen | what runs on port {v}; which service uses port {v}; what is on {v}; which service listens on {v}
host: host, server, machine, runs on, node | hostname | where does {e} run; which host does {e} run on; which machine is {e} on; on what server is {e}; where is {e} | what runs on {v}; which service is on {v}
version: version, tag, release, image tag | version | which version of {e} do we run; what version is {e}; which release of {e} is deployed; what version does {e} have; which {e} version is it | which service is on version {v}; what has version {v}
status: status, state, health | =running/stopped/crashed/restarting/degraded/healthy/starting/down/up/unhealthy/paused | is {e} running; what is the state of {e}; how is {e}; what's the status of {e}; is {e} up | which service is {v}; what is {v}
owner: owner, team, contact, maintainer, responsible | given | who owns {e}; who is responsible for {e}; who maintains {e}; whom do I ask about {e}; who looks after {e} | what does {v} own; which service does {v} look after
memory: memory, RAM, mem, memory limit | =128 MB/256 MB/512 MB/1 GB/2 GB/4 GB/8 GB/16 GB/300 MB/750 MB | how much memory does {e} have; how much RAM does {e} use; what is the memory limit of {e} | what uses {v}; which service has {v} of memory
replicas: replicas, instances, count, pods | #2-60 | how many replicas does {e} have; how many instances of {e} are there; how many pods does {e} run | which service has {v} replicas
region: region, zone, datacenter, site | =eu-west-1/us-east-2/eu-north-1/ap-south-1/us-west-1/fra2/ams3/nyc1/sgp1/lon1 | in which region is {e}; where is {e} deployed; which zone is {e} in | what is deployed in {v}; which service is in {v}
uptime: uptime, up since, age | =3 days/12 hours/41 days/7 weeks/2 hours/19 days/5 minutes/88 days/6 days | how long has {e} been up; what is the uptime of {e}; how long is {e} running |
url: url, endpoint, address, URL | url | what is the address of {e}; where can I reach {e}; what's the url of {e}; under which URL is {e} | what is at {v}
timeout: timeout, time limit | =5s/10s/30s/60s/90s/250ms/800ms/2m/15m | what is the timeout of {e}; after how long does {e} time out; how long until {e} times out |
# servers | hostname | host, server, hostname, machine, name | {e} | server | Servers; Hosts; Machines; Inventory of machines; Network
IP address: ip, IP, address, IP address | ip | what is the IP of {e}; which address does {e} have; what's the IP address of {e}; under which IP is {e} | which server has {v}; what is {v}; whose IP is {v}
system: os, OS, system, operating system | =Debian/Ubuntu/Alpine/Windows/FreeBSD/Fedora/Rocky/Arch/macOS/SUSE | what does {e} run; which OS does {e} have; what operating system is on {e} | which server runs {v}; what runs {v}
location: location, rack, site, room, where | rack | where is {e}; in which rack is {e}; where does {e} stand; which rack is {e} in | which server is in {v}; what is in {v}
admin: admin, owner, contact, root | given | who looks after {e}; who is the admin of {e}; who runs {e}; who administrates {e} | which server does {v} look after
disk: disk, disk used, usage, full | #1-99% | how full is {e}; how full is the disk of {e}; what is the disk usage of {e}; how much disk does {e} use | which server is {v} full
cores: cores, CPUs, cpu, vCPU | #2-128 | how many cores does {e} have; how many CPUs does {e} have | which server has {v} cores
# classes | subject | subject, class, course, Subject, lesson | {e} | class | Timetable; Classes; Courses; School schedule; Lessons; Exams
day: day, Day, on | day | on which day is {e}; when is {e}; what day do we have {e}; which day is the {e} class; when do I have {e} | what do we have on {v}; which class is on {v}; what is on {v}
time: time, starts, at, hour, from | @ | what time is {e}; when does {e} start; at what time is {e}; when does the {e} class begin | what starts at {v}; what is at {v}; which class is at {v}
room: room, Room, where, hall | #1-399 | where is {e}; which room is {e} in; in which room do we have {e}; where does the {e} class take place | what is in room {v}; which class is in room {v}
teacher: teacher, Teacher, by, lecturer, prof | surname | who teaches {e}; who is the {e} teacher; who gives {e}; whose class is {e}; with whom do we have {e} | what does {v} teach; which subject does {v} teach
credits: credits, points, ECTS | #1-30 | how many credits does {e} give; how many points is {e} worth |
exam: exam, exam date, test | date | when is the {e} exam; when is the exam in {e}; when do we write {e}; when is the {e} test | which exam is on {v}; what exam is on {v}
# results | given | name, Name, player, student, runner, who | {e} | who | Results; Scores; Ranking; Standings; Test results; Race results; Grades; Scoreboard
score: score, points, Score, pts, Points | #1-999 | what did {e} score; how many points did {e} get; what is {e}'s score; how many points does {e} have; how did {e} do | who scored {v}; who got {v} points; who has {v} points
grade: grade, mark, Grade | =A/B/C/D/A+/B-/C+/A-/B+/1.3/2.0/2.7/F | what grade did {e} get; which mark has {e}; what's {e}'s grade; how did {e} do in the test | who got a {v}
rank: rank, place, position, Pos, # | ordinal | which place did {e} get; what rank is {e}; where did {e} finish; what place is {e} in | who is {v}; who finished {v}; who came {v}; who was {v}
time: time, Time, finish | =1:02:11/58:40/3:41:09/12:33/9.81 s/47.2 s/2:15:30/1:24.6/31:05/20:48/4:02:57/16:22 | what was {e}'s time; how long did {e} take; how fast was {e}; what time did {e} run | who ran {v}; who finished in {v}; who needed {v}
number: number, bib, start number, no. | #1-900 | what is {e}'s number; which number does {e} wear; what's {e}'s start number | who wears {v}; who has number {v}
club: club, team, Team, country | word | which club is {e} in; which team is {e} in; who does {e} run for; what is {e}'s club | who is from {v}; who runs for {v}; who is in {v}
# teams | word | team, Team, club | {e} | team | League table; Standings; Table; Teams; League
points: points, pts, Pts, Points | #1-99 | how many points does {e} have; how many points do {e} have; what's the score of {e} | which team has {v} points; who has {v} points
wins: wins, W, won, Won | #1-40 | how many games did {e} win; how often did {e} win; how many wins does {e} have | which team has {v} wins
goals: goals, GF, scored | #1-120 | how many goals did {e} score; how many goals does {e} have | who scored {v} goals; which team has {v} goals
losses: losses, L, lost, Lost | #1-40 | how many games did {e} lose; how often did {e} lose; how many losses does {e} have | which team lost {v} games
coach: coach, Coach, trainer, manager | given | who coaches {e}; who is the coach of {e}; who trains {e} | which team does {v} coach; who does {v} train
stadium: stadium, ground, plays at, home | stadium | where does {e} play; what is the stadium of {e}; where do {e} play at home | who plays at {v}; which team plays at {v}
# towns | town | city, City, town, place | {e} | city | Cities; Branches; Offices; Locations; Tour dates; Places
population: population, inhabitants, people, Pop. | #1000-999999 | how many people live in {e}; what is the population of {e}; how big is {e}; how many inhabitants does {e} have | which city has {v} inhabitants
mayor: mayor, Mayor, head | given | who is the mayor of {e}; who runs {e}; who governs {e} | where is {v} the mayor; which city does {v} run
date: date, when, day, show | date | when are we in {e}; when is {e}; when is the show in {e}; on what date are we in {e}; when do we play in {e} | where are we on {v}; which city is on {v}; where is the show on {v}
venue: venue, hall, where, location | stadium | where do we play in {e}; what is the venue in {e}; where is the concert in {e} | in which city is {v}
temperature: temp, temperature, high, °C | degrees | how warm is it in {e}; how cold is it in {e}; what's the temperature in {e}; how hot is {e}; what temperature does {e} have | where is it {v}; which city has {v}
weather: weather, sky, conditions | =sunny/rain/snow/cloudy/fog/windy/storm/clear/drizzle/hail/partly cloudy | what's the weather in {e}; how is the weather in {e}; what is the weather like in {e} | where is it {v}
office: address, office, street | address | where is the office in {e}; what is the address in {e}; what's our address in {e} | which office is at {v}
manager: manager, contact, head, lead | given | who runs the {e} office; who is the manager in {e}; who is our contact in {e}; who leads {e} | which office does {v} lead; where is {v} the manager
employees: employees, staff, headcount | #2-900 | how many people work in {e}; how many employees are in {e}; how big is the team in {e} | which office has {v} employees
# forecast | day | day, Day, date | {e} | day | Weather; Forecast; Weather forecast; This week
temperature: temp, temperature, max, high, °C | degrees | how warm will it be on {e}; how warm is it on {e}; what's the temperature on {e}; how hot does it get on {e}; how cold is it on {e} | when is it {v}; which day has {v}
weather: weather, sky, forecast, conditions | =sunny/rain/snow/cloudy/fog/windy/storm/clear/drizzle/hail/showers | how is the weather on {e}; what's the weather on {e}; what will {e} be like; what's the forecast for {e} | when is there {v}; which day is {v}; which day will be {v}
wind: wind, wind speed, gusts | =5 kph/12 kph/30 kph/45 kph/70 kph/20 mph/8 mph/calm/15 knots | how windy is it on {e}; how strong is the wind on {e}; what is the wind on {e} |
rain: rain, chance of rain, precipitation | #1-99% | how likely is rain on {e}; what is the chance of rain on {e}; will it rain on {e} |
low: low, min, night | degrees | how cold does it get on {e}; what's the low on {e}; what's the minimum on {e} |
# menu | dish | dish, meal, food, Dish, what | the {e} | dish | Menu; Lunch menu; Today's menu; Bistro; Cafe menu; Snacks
price: price, EUR, Price, cost, $ | $ | how much is the {e}; what does the {e} cost; how much does the {e} cost; what's the price of the {e}; how much do I pay for the {e}; how much for a {e} | what costs {v}; which dish is {v}; what can I eat for {v}
calories: calories, kcal, energy | #90-990 | how many calories does the {e} have; how many kcal are in the {e} | what has {v} calories; which dish has {v} kcal
number: no., number, # | #1-99 | what number is the {e}; which number do I order for the {e} | what is number {v}
side: side, comes with, with, side dish | food | what comes with the {e}; what is the side of the {e}; what does the {e} come with | what comes with {v}
# books | title | title, book, Title, Book | {e} | book | Books; Reading list; Library; Library loans; Bookshelf
author: author, Author, by, written by, writer | person | who wrote {e}; who is the author of {e}; who is {e} by; by whom is {e} | what did {v} write; which book is by {v}; what is {v}'s book
year: year, published, Year, from | year | when was {e} published; from which year is {e}; when did {e} come out; what year is {e} from | which book is from {v}; what came out in {v}
pages: pages, length, pp. | #80-990 | how many pages does {e} have; how long is {e} | which book has {v} pages
borrower: borrowed by, lent to, who has it, loaned to | given | who has {e}; who borrowed {e}; whom did I lend {e} to | what did {v} borrow; which book does {v} have; what did I lend to {v}
due: due, due back, return by | date | when is {e} due; when does {e} have to be returned; until when can I keep {e} | which book is due on {v}; what is due on {v}
shelf: shelf, location, place | code | where is {e}; on which shelf is {e}; where do I find {e} | what is on shelf {v}; which book is on {v}
genre: genre, type, kind | =crime/fantasy/poetry/romance/history/science/travel/horror/biography/comedy | what genre is {e}; what kind of book is {e} | which book is {v}
# films | title | film, title, movie, show, Film | {e} | film | Films; Cinema; Movies; TV; Programme; Tonight; What's on
time: time, starts, at, Time | @ | when does {e} start; what time is {e}; when is {e} on; at what time can I see {e} | what starts at {v}; which film is at {v}; what is on at {v}
screen: screen, hall, room | #1-19 | on which screen is {e}; where is {e} shown; which screen is {e} on | which film is on screen {v}
director: director, by, directed by | person | who directed {e}; who is the director of {e}; who made {e} | which film is by {v}; what did {v} direct
channel: channel, station, on | #1-99 | which channel is {e} on; on what channel is {e} | what is on channel {v}
rating: rating, stars, score | =3.1/4.5/2.8/4.9/8.2/7.6/6.4/9.0/5.5/3.7 | how is {e} rated; what rating has {e}; how many stars does {e} have | which film has a rating of {v}
length: length, minutes, runtime, duration | =95 min/120 min/84 min/143 min/102 min/110 min/171 min/77 min | how long is {e}; how long does {e} take; what is the length of {e} | which film is {v} long
# pets | word | name, Name, animal, pet | {e} | animal | Pets; Animals; Patients; Vet's list; Shelter; Stable
species: species, kind, animal, type | animal | what kind of animal is {e}; what animal is {e}; what is {e}; what species is {e} | who is a {v}; which one is the {v}; what is the {v} called
age: age, years, Age | #1-30 | how old is {e}; what is {e}'s age | who is {v} years old
owner: owner, belongs to, Owner, human | given | who owns {e}; whose animal is {e}; who does {e} belong to; whose is {e} | what pet does {v} have; what is {v}'s animal called; which animal belongs to {v}
weight: weight, kg, Weight | weight | how heavy is {e}; how much does {e} weigh | who weighs {v}
food: food, eats, diet | food | what does {e} eat; what food does {e} get | who eats {v}; which animal eats {v}
stall: stall, cage, box, kennel | #1-60 | which cage is {e} in; where is {e}; in which box is {e} | who is in cage {v}; who is in stall {v}
# events | event | event, what, Event, title | the {e} | event | Calendar; Events; Agenda; Schedule; Programme; Upcoming; My week; Appointments
date: date, when, Date, on, day | daydate | when is the {e}; on what day is the {e}; what date is the {e}; which day is the {e}; when does the {e} take place; when do I have the {e} | what is on {v}; what happens on {v}; what do I have on {v}; what's on {v}
time: time, at, starts, start | @ | what time is the {e}; at what time is the {e}; when does the {e} start; what time does the {e} begin; when does the {e} begin | what is at {v}; what starts at {v}; what do I have at {v}; what's at {v}
place: place, where, room, location, venue | venue | where is the {e}; where does the {e} take place; which room is the {e} in; where do I have to go for the {e} | what is in {v}; what takes place in {v}; what happens in {v}
organiser: organiser, host, by, contact, lead | given | who organises the {e}; who hosts the {e}; who leads the {e}; who is in charge of the {e} | what does {v} organise; which event does {v} host
speaker: speaker, with, guest, who | person | who speaks at the {e}; who is the {e} with; who comes to the {e} | what is with {v}; where does {v} speak
tickets: tickets, price, entry, fee | $ | how much is the {e}; what does the {e} cost; how much is entry to the {e} | what costs {v}
duration: duration, length, lasts | duration | how long is the {e}; how long does the {e} last; how long does the {e} take | what lasts {v}
# tasks | task | task, to do, Task, what, action | {e} | task | To-do; Tasks; Action items; Backlog; Chores; Sprint board; Todo list
owner: owner, who, assigned to, Owner, assignee, responsible, by | given | who has to {e}; who will {e}; who is going to {e}; whose job is it to {e}; who should {e}; who must {e}; who does it: {e} | what does {v} have to do; what is {v}'s task; what will {v} do; what is {v} responsible for; what should {v} do
due: due, by, deadline, until, due date, when | daydate | when do we have to {e}; by when should we {e}; what is the deadline to {e}; until when do we have to {e}; when is it due: {e} | what is due on {v}; what has to be done by {v}; what is due {v}
status: status, state, Status, done? | =open/done/in progress/blocked/waiting/cancelled/half done/not started/reviewed | how far are we: {e}; what is the status of "{e}"; is it done: {e} | which task is {v}; what is {v}
priority: priority, prio, Priority | =high/low/urgent/medium/P1/P2/P3/critical/minor | how urgent is it to {e}; what priority is it to {e} | which task is {v}; what is {v}
hours: hours, estimate, effort | =2h/5h/30 min/1 day/3 days/8h/45 min/half a day | how long will it take to {e}; what is the estimate to {e} |
# rooms | roomno | room, Room, no., room no. | room {e} | room | Hotel; Guests; Rooms; Room list; Bookings; Room plan
guest: guest, Guest, name, occupant, booked by, who | surname | who is in room {e}; who stays in room {e}; who has room {e}; who booked room {e}; who is the guest in {e}; who sleeps in room {e} | which room is {v} in; where is {v}; where does {v} stay; what is {v}'s room; which room does {v} have
beds: beds, Beds, sleeps | #2-12 | how many beds are in room {e}; how many beds does room {e} have | which room has {v} beds
price: price, rate, per night, night | $ | how much is room {e}; what does room {e} cost; what's the price of room {e} | which room costs {v}
checkout: check-out, leaves, until, departure | daydate | when does room {e} check out; until when is room {e} taken; when does the guest in room {e} leave | which room leaves on {v}
floor: floor, level, storey | #1-30 | on which floor is room {e}; what floor is room {e} on | which room is on floor {v}
key: key, key code, code, door code | #1000-9999 | what is the code of room {e}; what's the key code for room {e}; how do I get into room {e} | which room has the code {v}
# projects | word | project, Project, name, code name | {e} | project | Projects; Portfolio; Current projects; Clients
lead: lead, leader, manager, PM, owner, who | given | who leads {e}; who is the lead of {e}; who manages {e}; who is in charge of {e}; who runs {e} | which project does {v} lead; what does {v} lead; what is {v} in charge of
deadline: deadline, due, Deadline, until, delivery | date | when is {e} due; what is the deadline of {e}; until when must {e} be finished; when does {e} end | which project is due on {v}
budget: budget, cost, Budget, money | $ | what is the budget of {e}; how much money does {e} have; how much does {e} cost; how big is the budget of {e} | which project has a budget of {v}
status: status, phase, Status, progress | =planning/on track/late/paused/testing/finished/at risk/cancelled/waiting for client/in review | how is {e} going; what is the status of {e}; what phase is {e} in; how far is {e} | which project is {v}; what is {v}
client: client, customer, for, Client | company | who is the client of {e}; for whom is {e}; which customer is {e} for; who ordered {e} | which project is for {v}; what do we do for {v}
people: people, team size, members | #2-60 | how many people work on {e}; how big is the team of {e} | which project has {v} people
# tickets | ticketno | ticket, id, ID, issue, bug, # | {e} | ticket | Tickets; Issues; Bugs; Open tickets; Support queue; Bug tracker
assignee: assignee, assigned, owner, who, assigned to | given | who works on {e}; who is assigned to {e}; who has {e}; who takes care of {e} | which ticket does {v} have; what is {v} working on; which ticket is assigned to {v}
status: status, state, Status | =open/closed/in review/waiting/blocked/fixed/rejected/duplicate/triaged/reopened | what is the status of {e}; is {e} closed; how is {e} going | which ticket is {v}; which one is {v}
severity: severity, prio, priority, level | =low/high/critical/minor/major/medium/blocker/trivial | how severe is {e}; what priority has {e}; how bad is {e} | which ticket is {v}; which bug is {v}
title: title, summary, subject, description | phrase | what is {e} about; what is the title of {e}; what does {e} say | which ticket is about the {v}; which ticket is about {v}
reporter: reporter, opened by, from, customer | given | who reported {e}; who opened {e}; who is {e} from | what did {v} report; which ticket is from {v}
# expenses | expense | expense, item, what, for, category | {e} | item | Expenses; Costs; Monthly budget; Budget; Bills; Household; What we spent
amount: amount, EUR, cost, sum, price, paid, total | $ | how much is {e}; how much did we spend on {e}; what do we pay for {e}; how much was {e}; what does {e} cost; how much do we pay for {e}; how much went to {e} | what did we spend {v} on; what cost {v}; what costs {v}
payer: paid by, who, payer, by | given | who paid for {e}; who pays {e}; who paid {e} | what did {v} pay for; what does {v} pay
date: date, when, on, Date, due | date | when did we pay {e}; when was {e} paid; when is {e} due | what did we pay on {v}; what is due on {v}
account: account, from, card, bank | company | from which account is {e} paid; where does the money for {e} come from | what is paid from {v}
# plants | plant | plant, Plant, crop, flower | the {e} | plant | Plants; Garden; Garden plan; Watering plan
water: water, watering, Water | =daily/weekly/every 3 days/twice a week/every second day/once a month/on Sundays/every 10 days | how often do I water the {e}; when does the {e} get water; how often does the {e} need water | which plant needs water {v}; what do I water {v}
place: place, where, bed, location, room | storage | where is the {e}; where does the {e} grow; where did I plant the {e} | what grows in {v}; which plant is in {v}
light: light, sun, Light | =full sun/shade/half shade/bright/indirect/dark/morning sun | how much light does the {e} need; what light does the {e} want | which plant needs {v}
height: height, cm, size | length | how tall is the {e}; how high does the {e} get | which plant is {v} tall
sown: planted, sown, since | date | when was the {e} planted; when did I sow the {e} | what was planted on {v}
# medicine | medicine | medicine, drug, name, pill, what | {e} | medicine | Medication; Medicine plan; Pills; Prescription
dose: dose, amount, Dose, mg | =1 pill/2 pills/5 mg/10 mg/20 mg/half a pill/100 mg/250 mg/5 drops/1 spoon/2 puffs/15 ml | how much {e} do I take; what is the dose of {e}; how much {e} should I take; what dose of {e} is it | of what do I take {v}
time: time, when, taken, at | =morning/evening/noon/before bed/8:00/20:00/after lunch/with breakfast/every 6 hours/twice a day | when do I take {e}; at what time should I take {e}; how often do I take {e} | what do I take in the {v}; what do I take at {v}
reason: for, reason, against | =headache/allergy/blood pressure/cough/fever/stomach/back pain/sleep/skin/asthma | what is {e} for; why do I take {e}; what does {e} help against | what do I take for {v}; what helps against {v}
# cars | plate | plate, car, vehicle, Plate, van | {e} | car | Cars; Fleet; Vehicles; Parking; Vans
driver: driver, Driver, used by, who | given | who drives {e}; who has {e}; who uses {e}; whose car is {e} | what does {v} drive; which car does {v} have; which car is {v}'s
mileage: mileage, km, miles, odometer | #1000-250000 | how many kilometres has {e}; what is the mileage of {e}; how far has {e} driven | which car has {v} km
space: space, bay, parking, spot | seatcode | where is {e} parked; where does {e} stand; which space is {e} in; where is {e} | which car is in {v}; who parks in {v}
model: model, make, Model, type | word | what model is {e}; what kind of car is {e}; what is {e} | which car is a {v}; what is the plate of the {v}
service: service, next service, inspection, MOT | date | when is the next service of {e}; when does {e} have to be inspected; when is {e} due | which car is due on {v}
# passengers | given | name, passenger, who, Name, guest | {e} | who | Passengers; Seating plan; Guest list; Tickets; Booking; Table plan
seat: seat, Seat, place | seatcode | where does {e} sit; which seat does {e} have; what is {e}'s seat; what seat is {e} in | who sits in {v}; who is in seat {v}; whose seat is {v}
table: table, Table | #1-60 | at which table is {e}; which table does {e} sit at; what table is {e} at | who sits at table {v}; who is at table {v}
meal: meal, food, menu, diet | food | what does {e} eat; which meal does {e} get; what did {e} order; what is {e} having | who eats {v}; who gets the {v}; who ordered {v}; who is having {v}
luggage: luggage, bags, Bags | #2-12 | how many bags does {e} have; how much luggage has {e} | who has {v} bags
gift: gift, present, brings, bringing | phrase | what does {e} bring; what is {e} bringing; what present is from {e} | who brings the {v}; who is bringing the {v}
answer: answer, RSVP, comes?, reply | =yes/no/maybe/plus one/not yet/late/only Saturday/with kids | is {e} coming; what did {e} reply; what did {e} say to the invitation | who said {v}; who answered {v}
# parcels | code | tracking, number, parcel, no. | parcel {e} | parcel | Parcels; Shipments; Deliveries; Post
status: status, state, Status | =delivered/in transit/lost/at customs/returned/waiting/out for delivery/at the depot/damaged | where is parcel {e}; what is the status of {e}; what happened to {e}; has {e} arrived | which parcel is {v}; which parcel was {v}
recipient: to, recipient, for, addressee | person | who is {e} for; who gets {e}; to whom does {e} go; whose parcel is {e} | which parcel is for {v}; which parcel goes to {v}
weight: weight, kg, Weight | weight | how heavy is {e}; how much does {e} weigh | which parcel weighs {v}
carrier: carrier, by, courier, service | company | who delivers {e}; which courier has {e}; who brings {e} | which parcel comes with {v}; what does {v} deliver
# shops | shop | shop, place, name, where | the {e} | place | Opening hours; Shops; Places; Nearby; Town guide; Local numbers; Useful numbers
opens: opens, from, open, opening | @ | when does the {e} open; what time does the {e} open; from when is the {e} open; at what time does the {e} open | what opens at {v}; which shop opens at {v}
closes: closes, to, until, closing | @ | when does the {e} close; what time does the {e} close; until when is the {e} open; how long is the {e} open | what closes at {v}; which shop closes at {v}
phone number: phone, tel, number | phone | what is the number of the {e}; how can I call the {e}; what's the phone number of the {e}; which number do I call for the {e} | whose number is {v}; what is {v}
address: address, street, at, where | address | where is the {e}; what is the address of the {e}; how do I find the {e} | what is at {v}
closed: closed, day off, rest day | day | on which day is the {e} closed; when is the {e} closed; which day is the {e} shut | what is closed on {v}; which shop is closed on {v}
distance: distance, km, how far | =200 m/1.5 km/3 km/800 m/12 km/5 minutes/450 m/2 miles/10 minutes | how far is the {e}; how far away is the {e}; how long does it take to the {e} |
# bins | bin | bin, waste, rubbish, what | the {e} | bin | Bin collection; Waste calendar; Bins; Rubbish
day: day, collected, pick-up, on, when | daydate | when is the {e} collected; on which day is the {e} emptied; when do I put out the {e}; when does the {e} go out; when do they pick up the {e} | what is collected on {v}; which bin goes out on {v}
contents: for, contents, what goes in | =paper/glass/plastic/food waste/metal/batteries/garden waste/cans/clothes | what goes into the {e}; what is the {e} for | where does {v} go; which bin is for {v}
# roles | role | role, position, Role, job | the {e} | role | Committee; Board; Roles; Who does what; Responsibilities; Crew; Cast
person: name, who, Name, person, held by | person | who is the {e}; who's the {e}; who is {e}; what is the {e} called; who works as the {e} | what is {v}; what does {v} do; which role does {v} have; what is {v}'s role
since: since, from, Since | year | since when is there a {e}; when did the {e} start; how long has the {e} been there | who started in {v}
phone number: phone, number, tel | phone | how can I reach the {e}; what's the number of the {e}; what is the {e}'s phone number | whose number is {v}
pay: pay, salary, wage | $ | what does the {e} earn; how much does the {e} get; what is the pay of the {e} | who earns {v}
# sensors | sensor | sensor, id, Sensor, device | {e} | sensor | Sensors; Measurements; Readings; Devices; Smart home
reading: value, reading, Reading, now | =21.5/19.0/7.4/101.3/48%/0.02/33.7/1013/5.25/12.8/66%/230 V | what does {e} show; what is the reading of {e}; what value has {e}; what did {e} measure | which sensor shows {v}; which sensor reads {v}
battery: battery, bat, charge | #1-99% | how much battery does {e} have; how full is the battery of {e}; what's the charge of {e} | which sensor has {v} battery
seen: last seen, seen, updated, time | @ | when was {e} last seen; when did {e} report last; when was {e} updated | which sensor was last seen at {v}
place: place, room, location, where | storage | where is {e}; where is {e} mounted; in which room is {e} | which sensor is in {v}; what is in {v}
# accounts | account | account, Account, name | the {e} | account | Accounts; Bank; Savings; Logins
balance: balance, amount, money, EUR | $ | how much is in the {e}; what is the balance of the {e}; how much money is on the {e} | which account has {v}
number: number, IBAN, no., account no. | code | what is the number of the {e}; which number does the {e} have | which account is {v}; what is {v}
user: user, login, username, user name | login | what is the login of the {e}; which username do I use for the {e}; who is the user of the {e} | what is {v} the login of; where is {v} the user
password: password, pw, pass, secret | password | what is the password of the {e}; how do I log in to the {e}; which password does the {e} have; what's the {e} password |
bank: bank, with, provider | company | with which bank is the {e}; where do I have the {e}; who provides the {e} | what do I have with {v}
# files | file | file, name, Name, File, path | {e} | file | Files; ls -l; Folder; Documents; Backup contents; Attachments
size: size, Size, KB, bytes | =12 KB/340 KB/1.2 MB/88 MB/4.7 GB/512 B/2.9 MB/65 KB/730 MB/19 MB/5120/20841 | how big is {e}; what is the size of {e}; how large is {e} | which file is {v}; what is {v} big
modified: modified, date, changed, last change | date | when was {e} changed; when was {e} last modified; when did somebody change {e} | which file was changed on {v}
owner: owner, user, by, author | given | who owns {e}; whose file is {e}; who wrote {e}; who changed {e} | which file belongs to {v}; what did {v} change
lines: lines, LOC, rows | #2-9000 | how many lines does {e} have; how long is {e} | which file has {v} lines
# processes | service | process, command, CMD, COMMAND, name | {e} | process | Processes; top; ps aux; Task manager; Jobs
pid: pid, PID, id | #100-32000 | what is the pid of {e}; which process id does {e} have; what pid has {e} | which process has pid {v}; what is process {v}; what is {v}
cpu: cpu, CPU, %CPU | #1-99% | how much CPU does {e} use; what is the CPU load of {e}; how busy is {e} | what uses {v} of the CPU; which process uses {v}
user: user, USER, owner, run by | login | who runs {e}; which user does {e} run as; who started {e} | what does {v} run; which process runs as {v}
memory: mem, memory, RSS, MEM | =12M/340M/1.2G/88M/64M/512M/2.4G/950M/31M/7M | how much memory does {e} use; how much RAM does {e} need | what uses {v}; which process uses {v} of memory
# commits | hash | commit, hash, rev, sha | {e} | commit | git log; Commits; History; Changelog; Changes
author: author, by, Author, who | given | who made {e}; who is the author of {e}; who committed {e}; who wrote {e} | which commit is from {v}; what is the hash of {v}'s commit; what did {v} commit
message: message, subject, what, change | commit | what did {e} change; what does {e} do; what is the message of {e}; what is {e} about | which commit says {v}; in which commit did we {v}; what is the hash of "{v}"
date: date, when, Date | date | when was {e} made; what is the date of {e}; from when is {e} | which commit is from {v}
# packages | package | package, library, dependency, name, module | {e} | package | Dependencies; Packages; requirements.txt; Libraries; Software; Installed
version: version, Version, installed, release | version | which version of {e} do we use; what version is {e}; which {e} is installed; what version of {e} is it; which version does {e} have | what is on version {v}; which package has version {v}
licence: licence, license, License | =MIT/BSD/Apache 2.0/GPL/MPL/ISC/proprietary/LGPL/public domain | what licence does {e} have; under which license is {e}; how is {e} licensed | what is under {v}; which package is {v}
latest: latest, newest, available | version | what is the newest version of {e}; what is the latest {e}; which version of {e} is available |
size: size, MB | =1 MB/12 MB/340 KB/88 MB/5 MB/64 KB/2.2 MB/31 MB | how big is {e}; how large is the package {e} | which package is {v}
# keys | keyname | key, Key, which | the {e} | key | Keys; Key list; Who has which key; Key cabinet
holder: who, holder, has it, with, name | given | who has the {e}; who holds the {e}; where is the {e}; with whom is the {e}; who took the {e} | which key does {v} have; what key has {v}; what does {v} hold
hook: hook, no., number, place | #1-60 | on which hook is the {e}; which hook is the {e} on; where does the {e} hang | which key is on hook {v}; what hangs on hook {v}
copies: copies, count, spares | #2-20 | how many copies of the {e} are there; how many {p} exist | which key has {v} copies
# lockers | #1-300 | locker, Locker, no., box | locker {e} | locker | Lockers; Mailboxes; Boxes; Storage
user: user, who, name, Name, belongs to | given | who has locker {e}; whose locker is {e}; who uses locker {e}; to whom does locker {e} belong | which locker does {v} have; what is {v}'s locker; which locker is {v}'s
combination: code, combination, PIN, lock | #1000-9999 | what is the code of locker {e}; how do I open locker {e}; what's the combination for locker {e}; which code opens locker {e} | which locker has the code {v}; what does {v} open
contents: contents, what, content, inside | phrase | what is in locker {e}; what's inside locker {e} | in which locker is the {v}; where is the {v}
# ingredients | food | ingredient, Ingredient, what, item | {e} | ingredient | Ingredients; Recipe; Shopping; Shopping list; Groceries; For the soup; For the cake
amount: amount, quantity, how much, Amount | recipe | how much {e} do I need; how much {e} goes in; how much {e} should I buy; what amount of {e} is it; how many {e} do I need; how much {e} is in it; how much {e} | of what do I need {v}
shop: shop, where, from, store | shop | where do I get {e}; where do I buy {e}; from which shop is the {e} | what do I get at the {v}
# exercises | exercise | exercise, Exercise, move, workout | {e} | exercise | Workout; Training plan; Gym; Exercises
reps: reps, times, repetitions | #3-60 | how many {e} do I do; how many reps of {e}; how often do I do {e} | what do I do {v} of
sets: sets, rounds | #2-12 | how many sets of {e} do I do; how many rounds of {e} |
weight: weight, kg, load | =10 kg/25 kg/40 kg/60 kg/7.5 kg/82.5 kg/100 kg/bodyweight/16 kg | how much weight for {e}; which weight do I use for {e}; how much do I lift for {e} | what do I do with {v}
day: day, on, when | day | when do I do {e}; on which day is {e} | what do I do on {v}
# samples | sample | sample, id, no., Sample, experiment | {e} | sample | Samples; Lab; Measurements; Experiment; Test runs; Runs
pH: pH, ph | =3.2/4.8/5.5/6.1/6.9/7.0/7.4/8.3/9.6/11.2 | what is the pH of {e}; what pH has {e}; how acidic is {e} | which sample has pH {v}
temperature: temp, temperature, T | degrees | how warm is {e}; what is the temperature of {e}; at which temperature is {e} | which sample has {v}
weight: mass, weight, g | =0.4 g/1.8 g/12 g/33.1 g/250 mg/7.75 g/90 g/5.02 g | how heavy is {e}; what is the mass of {e}; how much does {e} weigh | which sample weighs {v}
result: result, outcome, Result | =positive/negative/unclear/failed/passed/contaminated/repeat/normal/high/low | what was the result of {e}; what came out for {e}; how did {e} turn out | which sample was {v}; which sample is {v}
loss: loss, error, val loss | =0.42/1.73/0.09/2.31/0.88/3.05/0.571/1.204/0.35 | what loss did {e} reach; what is the loss of {e}; how low is the loss of {e} | which run has a loss of {v}
accuracy: accuracy, acc, score | =71%/88.4%/93%/64.2%/97.1%/55%/80.6%/76% | how accurate is {e}; what accuracy did {e} reach; what's the accuracy of {e} | which run has {v} accuracy
# birthdays | given | name, who, child, Name | {e} | who | Birthdays; Children; Class list; Kids; Students; Players
birthday: birthday, date, born, on | date | when is {e}'s birthday; when was {e} born; when does {e} have birthday | whose birthday is on {v}; whose birthday is {v}; who was born on {v}
wish: wish, wants, gift idea, present | phrase | what does {e} want; what does {e} wish for; what should we get for {e}; what is {e}'s wish | who wants the {v}; who wants a {v}
size: size, shoe size, shirt | =S/M/L/XL/36/38/40/42/44/128/134 | what size does {e} wear; what is {e}'s size; which size is {e} | who wears {v}; who has size {v}
bus: bus, line, Bus | #1-99 | which bus does {e} take; what bus is {e} on; with which bus does {e} come | who takes bus {v}; who is on bus {v}
allergy: allergy, allergies, allergic to, no | food | what is {e} allergic to; which allergy does {e} have; what can't {e} eat | who is allergic to {v}; who can't eat {v}
teacher: teacher, class teacher, tutor | surname | who is {e}'s teacher; who teaches {e}; which teacher does {e} have | who is in the class of {v}; whom does {v} teach
instrument: instrument, plays, learns | instrument | what does {e} play; which instrument does {e} learn | who plays the {v}; who learns the {v}
"""


def _fields(text: str, separator: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(separator) if part.strip())


def _parse(text: str) -> tuple[Domain, ...]:
    domains = []
    for block in text.strip().removeprefix("# ").split("\n# "):
        head, *lines = block.splitlines()
        name, kind, headers, naming, noun, titles = (part.strip() for part in head.split("|"))
        columns = []
        for line in lines:
            label, rest = line.split(":", 1)
            labels, value_kind, asks, reverse = (part.strip() for part in rest.split(" |"))
            columns.append(Column(label, _fields(labels, ","), value_kind, _fields(asks, ";"), _fields(reverse, ";")))
        domains.append(Domain(name, kind, _fields(headers, ","), naming, noun, _fields(titles, ";"), tuple(columns)))
    return tuple(domains)


DOMAINS = _parse(_TEXT)
