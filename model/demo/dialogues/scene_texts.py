"""Everyday scenes; see `scenes` for how they are written."""

SCENES = r"""
s:person t:time d:dayish
> {s_} flight lands at {t} on {d} | {s} [land] at {t} on {d} | on {d} {s_} plane gets in at {t} | {s_} flight gets in {d} at {t} | I have to pick {s} up from the airport at {t} on {d} | {s} [fly] in {d}, landing at {t}
t? what time does {s_} flight land | when [do] {s} land | at what time does {s_} plane get in | when does {s_} flight arrive | how late does {s} land
t~ {s_} landing time | {s_} arrival time
t! {s_} flight is delayed until {t} | {s_} plane is late and lands at {t} now | the airline moved {s_} landing to {t}
d? what day does {s_} flight land | which day [do] {s} fly in | on which day does {s_} plane come in

s:landlord p:price d:ordinalday
> our landlord, {s}, wants the rent by {d} | the rent is {p} and {s} wants it by {d} | our landlord {s} raised the rent to {p} | rent is {p}, due by {d}, and our landlord is {s} | {s} is our landlord and the rent, {p}, is due on {d}
s? who is our landlord | what's our landlord's name | what is our landlord called | who do we rent from | who gets the rent | name of our landlord
s~ our landlord
p? how much is the rent | what do we pay in rent | how much rent do we pay | what does the flat cost us | how high is the rent
p~ the rent | our rent
p! the rent went up to {p} | the rent has been raised to {p} | from next month we pay {p} in rent | rent is {p} now
d? when is the rent due | by when does {s} want the rent | when do we have to pay the rent | what day is rent due | until when can we pay the rent
d! the rent is due on {d} now | {s} now wants it by {d}

t:thing v:spot w:spot
> {t} [t:be] {v}, not {w} | {t} [t:be] {v} and not {w} | {t} [t:be] not {w} but {v} | {t} used to be {w} but now it's {v} | I thought {t} was {w} but I found it {v} | look for {t} {v}, not {w} | it's {v} that I left {t}, not {w} | I took {t} from where it was, {w}, and put it {v} | {t} [t:be] no longer {w}, I put it {v} | don't look {w}, {t} [t:be] {v}
v? where [t:be] {t} | where did I put {t} | where do I find {t} | where did I leave {t} | where can {t} be found | where should I look for {t} | where do we keep {t}
v~ {t}
v! I put {t} {v} | {t} [t:be] {v} now | you will find {t} {v} from now on

s:profession d:dayish t:time
> the {s} moved me to {d} | turns out the {s} moved me to {d} at {t} | the {s} can only see me on {d} at {t} | I'm seeing the {s} on {d} at {t} | I have the {s} on {d} | my {s} appointment is on {d} at {t} | the {s} gave me a slot on {d} at {t} | I've got an appointment with the {s} on {d} at {t}
d? when is my {s} appointment | what day is my {s} appointment | when am I seeing the {s} | which day do I see the {s} | on what day do I have the {s} | when do I have to go to the {s}
d~ my {s} appointment | the {s} appointment
d! the {s} moved me to {d} | the {s} called, it's {d} now | they pushed my {s} appointment to {d} | the {s} had to reschedule to {d} | my {s} appointment is on {d} instead
t? what time is my {s} appointment | at what time do I have to be at the {s} | what time am I seeing the {s}
t! the {s} can only see me at {t} | my {s} appointment starts at {t} now

n:count e:event
> we're expecting {n} people for {e} | {n} people are coming to {e} | {n} guests have signed up for {e} | we are {n} for {e} | there will be {n} of us at {e} | I booked a table for {n} for {e} | {e} has room for {n} people | {n} friends said yes to {e} | I invited {n} people to {e} | so far {n} people have said yes to {e} | {e} is limited to {n} people
n? how many people are coming to {e} | how many guests are coming to {e} | how many people will be at {e} | how many are we for {e} | how many guests does {e} have | how many people do we expect for {e} | for how many people is {e}
n~ the number of guests for {e} | the head count for {e}
n! we'll be {n} for {e} | make it {n} people for {e} | {n} people signed up for {e} in the end | we are {n} for {e} now | more people said yes, we're {n} for {e} | {e}: {n} people after all

s:me c:company o:company m:month
> I used to work at {o} but since {m} I'm with {c} | I left {o} and joined {c} in {m} | since {m} I've been working at {c} | I got a job at {c}, I start in {m} | after years at {o} I now work for {c} | I work at {c} now, {o} was no fun | I quit {o} and started at {c} in {m}
c? where do I work | who do I work for | which company do I work for | what company am I with | who is my employer | where am I employed | where do I work now
c~ my employer | my company
c! I changed jobs and am at {c} now | I work for {c} now | I've moved on to {c} | I got a new job at {c} | I left for {c}
m? since when do I work at {c} | when did I start at {c} | in which month did I start at {c}
o? where did I work before | where did I use to work | who was my previous employer | which company did I leave

s:person c:company o:company m:month
> {s} used to work at {o} but has been with {c} since {m} | {s} left {o} for {c} | {s} quit {o} in {m} and joined {c} | {s} got a job at {c}, starting in {m} | {s}, who was at {o} before, works for {c} now | after years at {o}, {s} went to {c} | {s} got hired by {c} | {s} is employed at {c}
c? where does {s} work | who does {s} work for | which company does {s} work for | where is {s} employed | what company is {s} with | where does {s} work now | which company hired {s}
c~ {s_} employer | {s_} company
c! {s} changed jobs and is now at {c} | {s} switched to {c} | {s} works for {c} now | {s} left to join {c} | {s} has a new job at {c}
o? where did {s} work before | where did {s} use to work | who was {s_} previous employer

k:name
> my name is {k} | I'm {k} | call me {k} | I am called {k} | people call me {k} | just call me {k} | everyone calls me {k} | hi, I'm {k} | hello, my name's {k} | this is {k} speaking | {k} is my name | you can call me {k} | the name's {k} | {k} here | I go by {k}
k? what's my name | what is my name | who am I | what am I called | do you know my name | what should you call me | tell me my name | what did I say my name was | do you remember my name | how do people call me | say my name
k~ my name
k! actually, call me {k} | my name is {k}, not what I said before | please call me {k} instead | I changed my name to {k}

k:name
> your name is {k} | I'll call you {k} | from now on you are {k} | I'm going to call you {k} | you're called {k} | let me call you {k} | I name you {k} | you shall be {k} | your new name is {k} | I will call you {k} from now on
k? what's your name | what is your name | what are you called | what did I name you | what do I call you | what name did I give you | do you know your name | tell me your name
k~ your name
k! I'll call you {k} instead | your name is {k} now | I'd rather call you {k}

l:shopping
> we need {l} | we need to buy {l} | I have to get {l} | please get {l} | shopping list: {l} | we're out of {l} | we have run out of {l} | on the shopping list: {l} | can you remember that we need {l} | I want to buy {l} at the market | don't forget to buy {l} | to buy: {l} | pick up {l} on the way home | the list says {l} | for the cake I still need {l} | we are short of {l}
l? what do we need | what do we need to buy | what's on the shopping list | what do I have to get | what should I buy | what was on the list | what are we out of | what did I want to buy | which groceries do we need | what do I need from the shop | what's missing
l~ the shopping list | the groceries
l! we need {l} instead | the list is {l} now | change of plan, buy {l}

b:collected d:schedule
> {b} is collected {d} | {b} goes out {d} | they pick up {b} {d} | {b} gets emptied {d} | {b} is picked up {d} | {b} has to go out {d} | they come for {b} {d} | {b} is emptied {d} | {b} {d} | put {b} out {d}
d? when is {b} collected | when does {b} go out | when do they pick up {b} | on which day is {b} collected | when do I put {b} out | which day is {b} emptied | what day do we put out {b} | how often is {b} collected | when do they come for {b}
d~ the collection day for {b} | pick-up day of {b}
d! {b} is collected {d} from now on | they changed {b} to {d} | now they come for {b} {d}

a:contrast b:contrast j:comparative n:object
> the {a} {n} is {j} than the {b} one | the {a} {n} is a lot {j} than the {b} one | of the two {n}s, the {a} one is {j} | the {b} {n} is not as good: the {a} one is {j} | I think the {a} {n} is {j} than the {b} {n} | between the {b} and the {a} {n}, the {a} one is {j}
a? which {n} is {j} | which of the {n}s is {j} | which one is {j}, the {a} or the {b} {n} | what {n} is {j}

a:person b:person j:personal
> {a} is {j} than {b} | {a} is much {j} than {b} | {a} is a bit {j} than {b} | compared with {b}, {a} is {j} | {b} is fine but {a} is {j} | {a} has always been {j} than {b} | {a} is two years older and also {j} than {b}
a? who is {j} than {b} | who's {j} than {b} | who is {j}, {a} or {b} | which of the two is {j}, {b} or {a}
b? who is {a} {j} than | than whom is {a} {j}

s:anyone f:food
> {s} can't eat {f} | {s} can't stand {f} | {s} must not eat {f} | {s} [do]n't eat {f} | {s} [be] allergic to {f}, so be careful | {s} [be] allergic to {f}, which is why we cook separately | please keep in mind that {s} can't eat {f} | no {f} for {s}, please | {s} [get] sick from {f} | {s} [avoid] {f}
f? what can {s} not eat | what can't {s} eat | what [be] {s} allergic to | what must {s} not eat | what [do] {s} not eat | which food [do] {s} avoid | what should I not cook for {s} | what does the allergy of {s} concern
f~ {s_} allergy

s:anyone m:medicine q:dose o:schedule
> {s} [take] {q} of {m} {o} | {s} [have] to take {q} of {m} {o} | the doctor gave {s} {m}, {q} {o} | {s} [need] {q} of {m} {o} | {m}: {q} {o} for {s} | {s} [be] on {m}, {q} {o} | the dose of {m} for {s} is {q} {o} | {o} {s} [take] {q} of {m}
q? how much {m} [do] {s} take | what dose of {m} [do] {s} take | how much {m} [do] {s} need | what is the dose of {m} for {s}
q~ the dose of {m} | {s_} dose of {m} | {m} dose
q! the doctor changed the dose of {m} to {q} | the dose of {m} went up to {q} | {s} [take] {q} of {m} now
o? how often [do] {s} take {m} | when [do] {s} take {m} | how many times [do] {s} take {m}
m? what [do] {s} take {o} | which medicine [do] {s} take | what medication [be] {s} on

w:profession k:firstname p:price x:object
> the {w} who fixed our {x} is called {k} and charges {p} an hour | {k}, the {w} who fixed the {x}, charges {p} | our {w} is called {k}; he wants {p} for the {x} | the {w} ({k}) wants {p} for the {x} | {k} the {w} will do the {x} for {p} | we found a {w}, {k}, who does the {x} for {p} | the {w} asked for {p} to do the {x}, his name is {k}
p? how much does the {w} charge | what does the {w} charge | how much does the {w} want | how much did the {w} ask for | what do we pay the {w} | what does {k} want for the {x} | how expensive is the {w}
p~ the {w}'s price | the {w}'s fee
p! the {w} wants {p} now | the {w} changed his price to {p} | {k} raised his price to {p}
k? what's the name of the {w} | who is the {w} | what is the {w} called | who fixed the {x} | who does the {x}
k~ the {w}'s name

x:document d:monthyear
> my {x} expires in {d} | my {x} is valid until {d} | my {x} runs out in {d} | I have to renew my {x} in {d} | my {x} is good until {d} | I need a new {x} in {d} | the {x} I have expires in {d} | {x} valid until {d}
d? when does my {x} expire | when do I have to renew my {x} | until when is my {x} valid | when does my {x} run out | how long is my {x} valid | when do I need a new {x} | my {x} is valid until when
d~ the expiry date of my {x} | my {x}
d! I renewed my {x}, it is valid until {d} | my {x} now runs until {d}

a:firstname b:firstname k:errand
> {b} was going to {k}, but {a} will do it instead | {a} will {k} instead of {b} | {b} can't {k}, so {a} will | {a} has to {k} because {b} is ill | not {b} but {a} will {k} | {a} is going to {k} | {a} promised to {k} | {a} is in charge this time: {a} has to {k}, not {b} | {a} offered to {k} | {a} agreed to {k} | it's {a}'s turn to {k} | {a} volunteered to {k} | {a} takes over from {b} and will {k} | it's {a} who will {k}
a? who will {k} | who is going to {k} | who has to {k} | who promised to {k} | whose turn is it to {k} | who should {k} | who is it that will {k} | which person has to {k} | who agreed to {k}
a! {a} will {k} after all | {a} can do it instead, so {a} will {k} | {a} is the one who will {k} | {a} swapped and will {k}
k? what will {a} do | what does {a} have to do | what did {a} promise to do | what is {a} going to do | what is {a}'s job | what is {a}'s task

s:anyone n:age
> {s} turned {n} last week | {s} will turn {n} in May | {s} just turned {n} | {s} [be] turning {n} soon | {s} [be] {n} | {s} [be] {n} years old | {s} [be] {n} now | at {n}, {s} still [go] swimming | {s} ({n}) [be] retired | {s}, {n}, [love] gardening
n? how old [be] {s} | what age [be] {s} | what is {s_} age | how many years old [be] {s}
n~ {s_} age
n! {s} had a birthday and [be] {n} now | {s} [be] {n} since yesterday

t:vehiclething g:place d:dayish
> {t} is in for repair at {g} until {d} | {t} is at {g} until {d} | {t} is at {g} for repairs | I took {t} to {g} for a check, it'll be back {d} | {t} broke down, it's at {g} until {d} | {t} has to stay at {g} until {d} | we left {t} at {g}; we get it back {d}
g? where is {t} | where did I take {t} | where is {t} being repaired | where did we leave {t}
g! {t} was towed to {g} | {t} is at {g} now
d? until when is {t} there | when do we get {t} back | when will {t} be back | when is {t} ready

n:code c:combo
> my locker is number {n}, combination {c} | locker {n}, combination {c} | my locker number is {n} and the combination is {c} | I have locker {n}; the lock opens with {c} | locker number {n}, code {c} | they gave me locker {n} with the combination {c}
n? which locker do I have | what's my locker number | what number is my locker | which locker is mine
n~ my locker number | my locker
c? what's my locker combination | what is the combination of my locker | how do I open my locker | what's the code for the locker | which combination does my locker have
c~ my locker combination | the locker code
c! the combination of my locker is {c} now | they changed the locker code to {c} | my locker opens with {c} now

o:orgkind s:street t:time
> there are two {o}s; the one on {s} opens at {t} | the {o} on {s} opens at {t} | the {o} in {s} opens its doors at {t} | {t} is when the {o} on {s} opens | you can go to the {o} on {s} from {t} on | the {o} on {s} is open from {t} | the {o} on {s} doesn't open before {t}
t? when does the {o} on {s} open | what time does the {o} on {s} open | at what time does the {o} open | from when is the {o} on {s} open | how early does the {o} open
t~ the opening time of the {o} | opening hours of the {o}
t! the {o} on {s} opens at {t} now | the {o} has new hours, it opens at {t}
s? where is the {o} | which street is the {o} on | on which street is the {o} | what street is the {o} in

y:year p:town d:date
> our anniversary is on {d}, we got married in {y} in {p} | we got married in {p} in {y} | we married on {d} in {p} | we had our wedding in {p} on {d} {y} | {p} is where we got married, in {y} | our wedding was in {p}, on {d} | it was in {p} that we got married in {y}
p? where did we get married | where was our wedding | in which city did we get married | where did we marry | in what town was our wedding
d? when is our anniversary | on what date is our anniversary | what's our anniversary | what day is our wedding anniversary | when did we marry
y? in which year did we get married | what year did we marry | since which year have we been married

t:object p:price q:price s:person
> I paid {p} for the {t} and sold it for {q} | I bought the {t} for {p} and sold it to {s} for {q} | I got the {t} for {p}; {s} gave me {q} for it | the {t} cost me {p} but {s} paid {q} | I spent {p} on the {t} and {s} bought it for {q}
p? how much did I pay for the {t} | what did I pay for the {t} | how much did the {t} cost me | how much did I spend on the {t} | for how much did I buy the {t} | what did the {t} cost me
q? how much did I sell the {t} for | how much did I get for the {t} | for how much did I sell the {t} | what did I sell the {t} for | how much did {s} pay for the {t}
s? who bought the {t} | who did I sell the {t} to | to whom did I sell the {t} | who has the {t} now

w:contact n:phone
> you can reach {w} under {n} | you can reach {w} at {n} | {w} can be reached at {n} | {w_} number is {n} | call {w} on {n} | if something happens, ring {w}: {n} | {w}: {n} | {w_} phone: {n} | to reach {w}, dial {n} | {n} is {w_} number | in an emergency call {w} at {n} | {w} gave me this number: {n} | text {w} at {n} | {w} has a new number, {n} | phone number of {w}: {n}
n? what's {w_} phone number | what is {w_} number | how can I reach {w} | how do I reach {w} | what number do I call for {w} | which number do I dial for {w} | under which number can I reach {w} | phone number of {w} | how do I call {w} | on what number is {w} available
n~ {w_} number | {w_} phone number
n! {w} has a new number: {n} | {w} got a new phone, the number is {n} | {w} can be reached at {n} now | use {n} for {w} from now on

w:contact n:mail
> you can email {w} at {n} | {w_} email is {n} | write to {w} at {n} | {w}: {n} | mail {w} at {n} | send it to {w}, {n} | {w} uses {n} | {w_} address is {n} | {n} is where {w} reads mail | to write to {w}, use {n}
n? what's {w_} email | what is {w_} email address | where do I write to {w} | how do I email {w} | which address do I use to write to {w} | what's the mail address of {w}
n~ {w_} email | {w_} email address
n! {w} has a new email: {n} | {w} switched to {n} | write to {w} at {n} now

s:orgname o:street a:address
> {s_} practice moved from {o} to {a} | {s} moved from {o} to {a} | {s} is no longer on {o}, it's at {a} now | {s} left {o} and reopened at {a} | {s} relocated to {a} | {s} has a new address: {a} | {s} can be found at {a} | you'll find {s} at {a}
a? where is {s} | where is {s} now | what's the address of {s} | where did {s} move to | where can I find {s} | what is the new address of {s} | which address does {s} have
a~ the address of {s} | {s_} address
a! {s} moved to {a} | {s} is at {a} now | {s} relocated to {a}

d:dish i:food
> the secret ingredient in my {d} is {i} | I put {i} in my {d} | my {d} needs {i} | I always add {i} to my {d} | what makes my {d} special is {i} | my {d} recipe calls for {i} | there is {i} in my {d} | the {d} tastes better with {i} | you can't make my {d} without {i} | I season my {d} with {i}
i? what do I put in my {d} | what's the secret ingredient in my {d} | what do I add to my {d} | what is in my {d} | what makes my {d} special | what does my {d} need | what goes into my {d}
i~ the secret ingredient of my {d}
i! I put {i} in my {d} now | I now use {i} in my {d} instead

s:person l:children
> {s_} kids are called {l} | {s_} children are {l} | {s} [have] three kids: {l} | {s} [have] two kids, {l} | {l} are {s_} children | the names of {s_} children are {l} | {s} [be] the parent of {l} | {s} named the twins {l}
l? what are the names of {s_} kids | what are {s_} kids called | who are {s_} children | what did {s} name the kids | what are {s_} children's names | which children [do] {s} have
l~ {s_} children | {s_} kids | the names of {s_} children

o:orgkind d:weekdays
> the {o} is closed on {d} | the {o} doesn't open on {d} | there is no {o} on {d}, it's closed | on {d} the {o} stays shut | the {o} is never open on {d} | {d}: {o} closed | the {o} takes {d} off | don't go to the {o} on {d}, it's closed
d? when is the {o} closed | on what day is the {o} closed | which day is the {o} closed | what day does the {o} not open | on which days is the {o} shut
d! the {o} is closed on {d} now | the {o} changed its closing day to {d}

n:temp d:dish m:duration
> preheat the oven to {n} | bake the {d} at {n} for {m} | the {d} goes in the oven at {n} for {m} | set the oven to {n} for the {d} and wait {m} | the {d} needs {m} at {n} | {d}: {m} at {n} | the oven has to be at {n} for the {d} | put the {d} in for {m} at {n} | leave the {d} in the oven for {m}, at {n}
n? what temperature for the oven | how hot should the oven be | at what temperature do I bake the {d} | what do I set the oven to | how hot does the oven have to be for the {d} | which temperature does the {d} need
n~ the oven temperature | the temperature of the oven
n! set the oven to {n} instead | {n} is better for the {d} | the oven should be at {n}
m? how long does the {d} need | how long does the {d} have to bake | how long do I bake the {d} | for how long is the {d} in the oven | how long do I leave the {d} in
m~ the baking time of the {d}

s:person g:gift e:occasion
> {s} [want] {g} for {e} | {s} [wish] for {g} for {e} | {s} would like {g} for {e} | I'm giving {s} {g} for {e} | for {e} {s} [want] {g} | we got {s} {g} for {e} | {s} told me he'd love {g} for {e} | I bought {g} for {s} for {e} | let's get {s} {g} for {e} | a good present for {s} would be {g}
g? what [do] {s} want for {e} | what should I get {s} for {e} | what am I giving {s} for {e} | what present did we pick for {s} | what would {s} like for {e} | which gift is for {s} | what did we get {s} | what do we give {s} for {e}
g~ {s_} present | the present for {s}
g! {s} would rather have {g} for {e} | I'll get {s} {g} instead | {s} wants {g} now

r:kid k:person
> {r_} teacher is a {k} | {k} teaches {r} | {r} [be] taught by {k} | {r} [have] {k} as a teacher | {k} is {r_} teacher this year | {r_} new teacher is {k} | {r} is in {k_} class | {r} got {k} as class teacher
k? who teaches {r} | who is {r_} teacher | what's the name of {r_} teacher | in whose class is {r} | who has {r} in class | by whom is {r} taught
k~ {r_} teacher
k! {k} took over {r_} class | {r} [have] {k} now | {r_} teacher is {k} this year

t:mything s:person
> I lent {t} to {s} | I lent {s} {t} | {s} borrowed {t} | {s} still [have] {t} | {s} took {t} home | I gave {t} to {s} | {t} is with {s} | {s} has got {t} | {t} was lent to {s} | {s} asked for {t}, so I gave it away | I handed {t} over to {s}
s? who has {t} | who did I lend {t} to | who borrowed {t} | where is {t} | who took {t} | who did I give {t} to | with whom is {t} | to whom did I lend {t}
s! {s} has {t} now | I gave {t} to {s} instead | {s} picked up {t}, so it's no longer there
t? what did I lend to {s} | what did {s} borrow | what did I give to {s} | what of mine does {s} have

l:line p:place
> {l} stops right in front of {p} | {l} goes to {p} | you take {l} to {p} | {l} takes you to {p} | to get to {p}, take {l} | {p} can be reached with {l} | you get to {p} by {l} | {l} runs to {p} | {l} stops at {p} | take {l} if you want to go to {p} | {l} ends at {p}
l? which bus stops at {p} | how do I get to {p} | what do I take to {p} | which line goes to {p} | what goes to {p} | how do we get to {p} | how can I reach {p}
l! take {l} to {p} now | {l} goes to {p} now | from today {l} runs to {p}
p? where does {l} go | where does {l} stop | where does {l} end | where does {l} take me

t:object b:brand p:price
> the {t} broke so we got a new one, a {b}, for {p} | our new {t} is a {b} and cost {p} | I ordered a {b} {t} for {p} | we bought a {t} by {b} for {p} | the {t} is from {b}, it was {p} | I have a {b} {t} that cost {p} | we replaced the {t} with a {b} for {p} | the {b} {t} was {p}
p? how much was the {t} | what did the {t} cost | how much did we pay for the {t} | how much did the {t} cost | what was the price of the {t} | how expensive was the {t}
p~ the price of the {t} | the {t}'s price
b? which brand is the {t} | what brand is our {t} | who makes the {t} | what make is the {t} | what kind of {t} did we get
b~ the brand of the {t} | the {t}'s brand

s:person t:town r:relation
> {s} and his {r} live in {t} | {s} has a house in {t} | {s} lives in {t} these days | {s} has been living in {t} since the divorce | {s} is based in {t} | {s} settled in {t} | {s} grew up elsewhere but lives in {t} | {s} calls {t} home | {t} is where {s} lives | {s} lives over in {t} with the family | {s} rents a place in {t} | {s} has a flat in {t} | {s} makes his home in {t} | {s} resides in {t}
t? where does {s} live | where is {s} based | in which city does {s} live | what town does {s} live in | where's {s} living | where is {s_} home | which city is {s} in
t~ {s_} home town | {s_} city
t! {s} moved to {t} | {s} moved to {t} last month | {s} has relocated to {t} | {s} lives in {t} now | {s} packed up and went to {t} | {s} found a flat in {t} and moved there

t:town
> I live in {t} | I'm from {t} | I live in {t} with my family | I am based in {t} | I grew up on a farm but live in {t} | my home is in {t} | we live in {t} | I've lived in {t} for years | I'm living in {t} at the moment | my flat is in {t} | I have a small house in {t}
t? where do I live | where do we live | which city do I live in | where is my home | where am I based | what town do I live in | in which town do I live | where's my home
t~ my home town | my city
t! I moved to {t} | I moved to {t} last week | I've relocated to {t} | I live in {t} now | we moved house, we're in {t} now | I left for {t}

e:event d:dayish t:time p:room
> {e} is {d} at {t} in {p} | {e} got moved to {p} and starts at {t} {d} | don't be late, {e} starts at {t} in {p} | {e} will start at {t}, in {p} | {d}, {t}, {p}: {e} | {e} has been set for {d} at {t}, {p} | I have {e} at {t} on {d} in {p} | we meet for {e} at {t} in {p}, {d} | {e}: {d}, {t}, {p}
t? what time is {e} | what time's {e} | when does {e} start | at what time does {e} begin | what time do we meet for {e} | how late is {e}
t~ the time of {e} | {e} time
t! {e} starts at {t} | {e} got pushed back, it's at {t} now | {e} starts a bit later, at {t} | they moved {e} to {t} | {e} will be at {t} instead | {e} begins at {t} now
p? where is {e} | which room is {e} in | where do we meet for {e} | where do I have to go for {e} | in which room is {e} | where's {e}
p~ the room of {e} | {e} room
p! {e} is in {p} now | {e} was moved to {p} | they moved {e} to {p} | we switched rooms, {e} is in {p} | {e} takes place in {p} instead
d? what day is {e} | on which day is {e} | which day is {e}
d! {e} is {d} now | {e} got moved to {d} | they pushed {e} to {d} | {e} had to be postponed to {d}

t:mything c:colour o:colour
> {t} is {c} | {t} is {c}, not {o} | {t} used to be {o} but I painted it {c} | I painted {t} {c} | I have a {c} cover on {t} | {t} has a {c} stripe | {t} is {c} with a bit of {o} | the colour of {t} is {c} | {t} comes in {c}
c? what colour is {t} | which colour is {t} | what color is {t} | what is the colour of {t} | what colour did I paint {t} | what's the color of {t}
c~ the colour of {t} | {t_} colour
c! I repainted {t} in {c} | {t} is {c} now | I painted {t} {c} | {t} got a new coat of paint, it is {c} now

s:anyone h:activity d:schedule
> {s} [go] {h} {d} | {d} {s} [go] {h} | {s} [have] {h} lessons {d} | {s} [do] {h} {d} | {s} [be] taking {h} classes {d} | {s} [meet] friends for {h} {d} | {s} started {h}, {d}
d? when [do] {s} go {h} | how often [do] {s} go {h} | on which days [do] {s} do {h} | when [do] {s} have {h}
d! {s} [go] {h} {d} now | {s_} {h} was moved to {d}
h? what [do] {s} do {d} | what sport [do] {s} do | which hobby [do] {s} have | what [be] {s_} hobby
h! {s} gave that up and [do] {h} now | {s} switched to {h}

s:person c:reason
> {s} was late because {c} | {s} can't come because {c} | {s} [be] sad because {c} | {s} cancelled because {c} | because {c}, {s} missed the train | {s} stayed home since {c} | {s} had to leave early because {c} | the reason {s} isn't here is that {c} | {s} won't make it, {c}
c? why was {s} late | why can't {s} come | why is {s} not here | why did {s} cancel | for what reason did {s} stay away | what happened to {s} | what's {s_} excuse | what is the reason that {s} isn't here
c~ {s_} excuse | {s_} reason

a:collected b:collected d:schedule e:schedule
> {a} is collected {d} and {b} {e} | {a} goes out {d}, {b} {e} | {a} {d}, {b} {e} | they pick up {a} {d} and {b} {e} | {d} it's {a}, {e} it's {b} | put {a} out {d} and {b} {e}
d? when is {a} collected | when does {a} go out | when do they pick up {a} | when do I put {a} out | how often is {a} collected
d! {a} is collected {d} from now on
e? when is {b} collected | when does {b} go out | when do they pick up {b} | when do I put {b} out
e! {b} goes out {e} now

a:person b:person u:gift v:gift
> {a} gets {u} and {b} gets {v} | {a} gets {u}, {b} {v} | {u} is for {a}, {v} is for {b} | I bought {u} for {a} and {v} for {b} | {a} wants {u} while {b} wants {v} | {a} brings {u}, {b} brings {v} | {a} will bring {u} and {b} will bring {v} | for {a} I have {u}, for {b} {v} | {a} asked for {u} and {b} for {v}
u? what does {a} get | what is for {a} | what did I buy for {a} | what will {a} bring | what does {a} bring | what does {a} want
u~ {a_} present
v? what does {b} get | what is for {b} | what did I buy for {b} | what will {b} bring | what does {b} bring | what does {b} want
a? who gets {u} | who brings {u} | who wants {u} | who is {u} for
b? who gets {v} | who brings {v} | who wants {v} | who is {v} for

a:person b:person u:count v:count c:count d:person
> {a} has {u} points and {b} has {v} | {a} has {u} points, {b} {v} and {d} {c} | {a} got {u} points, {b} only {v} | score: {a} {u}, {b} {v} | {a}: {u} points, {b}: {v} points, {d}: {c} points | {a} leads with {u} points, then {d} with {c} and {b} with {v}
u? how many points does {a} have | what is {a_} score | how many points did {a} get | how many points for {a}
u~ {a_} points | {a_} score
u! {a} is up to {u} points | {a} has {u} points now
v? how many points does {b} have | what is {b_} score | how many points did {b} get
v~ {b_} points | {b_} score
c? how many points does {d} have | what is {d_} score | how many points did {d} get
c~ {d_} points

a:object b:object u:price v:price
> the {a} costs {u} and the {b} {v} | the {a} is {u}, the {b} {v} | {u} for the {a}, {v} for the {b} | we paid {u} for the {a} and {v} for the {b} | the {a} was {u} and the {b} was {v} | the shop charges {u} for the {a} and {v} for the {b} | a {a} is {u}, a {b} {v} | the {a} goes for {u}, the {b} for {v}
u? how much is the {a} | what does the {a} cost | how much does the {a} cost | what is the price of the {a} | how much did we pay for the {a}
u~ the price of the {a} | the {a} price
u! the {a} costs {u} now | the {a} went up to {u}
v? how much is the {b} | what does the {b} cost | how much does the {b} cost | what is the price of the {b} | how much did we pay for the {b}
v~ the price of the {b} | the {b} price

a:mything b:mything u:spot v:spot
> {a} is {u} and {b} is {v} | {a} is {u}, {b} {v} | I left {a} {u} and {b} {v} | {a} and {b} are both here: one {u}, the other {v} | you find {a} {u} and {b} {v} | I keep {a} {u} but {b} {v} | {a} goes {u}, {b} goes {v}
u? where is {a} | where did I leave {a} | where do I keep {a} | where can I find {a}
u~ {a}
u! I put {a} {u} | {a} is {u} now
v? where is {b} | where did I leave {b} | where do I keep {b} | where can I find {b}
v~ {b}

a:person b:person u:job_ v:job_
> {a} is a {u} and {b} is a {v} | {a} works as a {u}, {b} as a {v} | {a} is a {u}, {b} a {v} | {a} trained as a {u} while {b} became a {v} | {a}, a {u}, and {b}, a {v}, live next door | one of them, {a}, is a {u}; the other, {b}, a {v}
u? what does {a} do | what is {a_} job | what does {a} do for a living | what does {a} work as | which job does {a} have
u~ {a_} job
u! {a} is a {u} now | {a} gave that up and became a {u}
v? what does {b} do | what is {b_} job | what does {b} do for a living | what does {b} work as
v~ {b_} job

a:person b:person u:dayish v:dayish
> {a} comes on {u} and {b} on {v} | {a} can do {u}, {b} can do {v} | {a} arrives on {u}, {b} on {v} | {a} has time on {u} and {b} on {v} | on {u} {a} is here, on {v} it's {b} | {a} is off on {u} and {b} is off on {v}
u? when does {a} come | which day can {a} do | when does {a} arrive | when does {a} have time | what day suits {a} | when is {a} here
u! {a} can only come on {u} | for {a} it's {u} now
v? when does {b} come | which day can {b} do | when does {b} arrive | when does {b} have time | when is {b} here

a:person b:person c:person u:room v:room w:room
> {a} is in {u}, {b} in {v} and {c} in {w} | {a} sleeps in {u}, {b} in {v} | {a} has {u} and {b} {v} | rooms: {a} {u}, {b} {v}, {c} {w} | {a} moved into {u}, {b} into {v}, {c} into {w} | {a} works in {u} while {b} works in {v}
u? which room is {a} in | where is {a} | where does {a} sleep | which room does {a} have | in which room is {a}
u~ {a_} room
u! {a} moved to {u} | {a} swapped rooms and is in {u} now
v? which room is {b} in | where is {b} | where does {b} sleep | which room does {b} have
v~ {b_} room
w? which room is {c} in | where is {c} | which room does {c} have
w~ {c_} room

n:animalname k:petkind
> my {k} is called {n} | I have a {k} called {n} | I have a {k} named {n} | we have a {k}, {n} | our {k}'s name is {n} | {n} is our {k} | we named our {k} {n} | this is {n}, my {k} | the {k} answers to {n} | we got a {k} and called it {n} | {n}, our {k}, sleeps all day | say hello to {n}, our {k} | the name of our {k} is {n} | our new {k} is called {n}
n? what's my {k} called | what is our {k}'s name | what is the name of the {k} | what did we call our {k} | what's the {k}'s name | how is our {k} called | what did we name the {k} | which name does our {k} have
n~ the name of our {k} | our {k}'s name | the {k}'s name
n! we renamed our {k} {n} | our {k} is called {n} now
k? what kind of animal is {n} | what animal is {n} | who is {n} | what sort of pet is {n} | which pet do we have

n:animalname k:petkind a:age w:weight
> our {k} {n} is {a} years old and weighs {w} | {n} the {k} weighs {w} | our {k} {n} is {a} | {n}, our {k}, turned {a} | my {k} {n} has reached {w} | at {a} our {k} {n} still jumps | the vet says {n} weighs {w}
a? how old is {n} | what age is {n} | how old is our {k}
a~ {n}'s age
w? how much does {n} weigh | how heavy is {n} | what does {n} weigh | how heavy is our {k}
w~ {n}'s weight
w! {n} is down to {w} | {n} weighs {w} now | {n} gained weight, it's {w}

s:anyone t:time u:time
> {s} [get] up at {t} and [go] to bed at {u} | {s} [wake] up at {t} | {s} [have] to get up at {t} | the alarm rings at {t} for {s} | {s} [be] up at {t} every day | {s} [go] to sleep at {u} | {s} usually [get] out of bed at {t} and [turn] in at {u}
t? when [do] {s} get up | what time [do] {s} wake up | at what time [do] {s} get up | how early [do] {s} get up | when [be] {s} up
t! {s} [get] up at {t} now | {s} [sleep] until {t} these days
u? when [do] {s} go to bed | what time [do] {s} go to sleep | at what time [do] {s} turn in | how late [do] {s} go to bed
u! {s} [go] to bed at {u} now

s:network p:password
> {s}: {p} | {s} password {p} | the {s} password is {p} | {s} pw: {p} | {s} login {p} | to get into the {s} type {p} | you log in to the {s} with {p} | password for the {s}: {p} | the {s} wants {p} as the password | for {s} it's {p} | the {s} key is {p} | enter {p} to join the {s} | pass for {s} is {p} | connect to the {s} with {p} | the password for the {s} is now {p} | {s} -> {p}
p? what's the {s} password | what is the password for the {s} | {s} password | how do I log in to the {s} | how do I get into the {s} | what do I type for the {s} | password for {s} | what's the key for the {s} | which password does the {s} have | what do I need to get on the {s}
p~ the {s} password | the password for the {s}
p! the {s} password was changed to {p} | new {s} password: {p} | they reset the {s} password, it's {p} | the {s} password is {p} now | the old {s} password no longer works, use {p}

x:lockthing c:code
> {x} code {c} | {x} code: {c} | the code for the {x} is {c} | {c} opens the {x} | the {x} opens with {c} | type {c} to open the {x} | the {x} code is {c} | enter {c} at the {x} | press {c} for the {x} | {x}: {c} | the combination of the {x} is {c} | you need {c} for the {x} | the PIN for the {x} is {c} | dial {c} on the {x} | to unlock the {x} enter {c} | the {x} is locked, the code is {c} | {c} is the code for the {x}
c? what's the code for the {x} | what is the {x} code | how do I open the {x} | how do I get into the {x} | which code opens the {x} | what do I type at the {x} | what's the combination of the {x} | {x} code | what code does the {x} have | how can I unlock the {x}
c~ the {x} code | the code for the {x}
c! the {x} code is {c} now | they changed the {x} code to {c} | the {x} opens with {c} now | new code for the {x}: {c}

o:ordernoun c:code
> my {o} number is {c} | {o} number: {c} | {o} no. {c} | the {o} has the number {c} | your {o} number is {c} | {o} {c} | the number of my {o} is {c} | they gave me {o} number {c} | my {o} is listed under {c} | {o} reference {c} | please quote {c} for the {o} | the {o} is filed as {c}
c? what's my {o} number | what is the number of my {o} | {o} number | which number does my {o} have | what's the reference for the {o} | under which number is my {o} listed | which {o} number was it
c~ my {o} number | the {o} number
c! my {o} got a new number, {c} | the {o} number is {c} now

g:gate t:time s:seatnumber f:flight
> flight {f} leaves at {t} from {g}, I'm in {s} | {f} departs at {t} from {g} | my flight {f} boards at {t}, {g}, {s} | we fly with {f} at {t} | boarding for {f} is at {t} at {g} | I have {s} on {f} | I'm booked on {f}, {s}, leaving at {t} | {f}: {g}, {t}, {s} | {f} goes from {g} at {t} | my seat on {f} is {s}
g? which gate does {f} leave from | what gate is {f} | where does {f} leave from | from which gate do I fly | where do I board {f}
g! {f} leaves from {g} instead | the gate of {f} changed to {g}
t? when does {f} leave | what time is {f} | at what time does {f} depart | when do I fly
t! {f} is delayed until {t} | {f} leaves at {t} now
s? what seat do I have on {f} | where do I sit on {f} | which seat is mine on {f} | what's my seat
f? which flight am I on | what is my flight number | what's the flight | which flight do we take
f~ my flight number

strict p:person n:count d:relday
> {p} is coming {d} with {n} friends | {d} {p} comes with {n} friends | {p} visits us {d} and brings {n} friends | {p} wants to come {d} | {p} arrives {d} and brings {n} kids | {p} will be here {d} | {p} is leaving {d} | we meet {p} {d} | I'm seeing {p} {d} | {p} starts {d} | {p} has promised to come {d} | {p} is getting married {d}
d? when is {p} coming | when does {p} come | when will {p} be here | when do we meet {p} | when am I seeing {p} | when is {p} leaving | when does {p} start | when is {p} getting married
d! {p} comes {d} instead | {p} can't, it's {d} now | {p} is only coming {d}
n? how many friends does {p} bring | how many people come with {p} | with how many friends does {p} come | how many kids does {p} bring

e:event d:relday
> {e} is {d} | we have {e} {d} | {d} is {e} | I have {e} {d} | there is {e} {d} | {e} will take place {d} | {e} takes place {d} | don't forget {e} {d} | we're having {e} {d} | {e} has been planned for {d} | {e} got moved, it's {d} | they set {e} for {d}
d? when is {e} | when do we have {e} | when does {e} take place | when will {e} be | when are we having {e}
d! {e} is {d} now | {e} was moved to {d} | we have {e} {d} instead | {e} only takes place {d}

x:object d:relday p:company
> the {x} arrives {d} | my {x} from {p} arrives {d} | {p} delivers the {x} {d} | the {x} I ordered from {p} should be here {d} | the parcel with the {x} comes {d} | I get the {x} {d} | the {x} will be delivered {d} by {p} | {p} says the {x} comes {d} | the {x} was ordered from {p} and comes {d}
d? when does the {x} arrive | when will the {x} be delivered | when do I get the {x} | when does the {x} come | when should the {x} be here
d! the {x} comes {d} instead | the {x} is late and comes {d} | delivery of the {x} was moved to {d}
p? who delivers the {x} | where did I order the {x} | which company delivers the {x} | where is the {x} from | who brings the {x}

strict a:place b:place
> {a} is right next to {b} | {a} is behind {b} | {a} is across from {b} | you find {a} behind {b} | {a} is just around the corner from {b} | {a} is opposite {b} | {a} lies between the river and {b} | to find {a}, look for {b} | {a} is two doors down from {b} | from {b} it's one minute to {a}
b? where is {a} | what is {a} next to | where do I find {a} | where can {a} be found | how do I find {a}

p:person r:relation q:person
> {p} is {q_} {r} | {p}, {q_} {r}, said hi | {q_} {r} is {p} | {q_} {r} is called {p} | {q} has a {r} called {p} | {q} has a {r} named {p} | I met {p}, who is {q_} {r} | {p} happens to be {q_} {r} | {q}, whose {r} is {p}, came too | the {r} of {q} is {p} | {p} turned out to be {q_} {r} | {q} introduced me to his {r} {p}
p? who is {q_} {r} | what's {q_} {r} called | what is the name of {q_} {r} | who is the {r} of {q} | how is {q_} {r} called
p~ {q_} {r} | the {r} of {q}
p! {q_} {r} is {p} now | {q} has a new {r}, {p}
q? whose {r} is {p} | who has {p} as {r}
r? how is {p} related to {q} | what is {p} to {q} | who is {p} to {q}

r:relation n:firstname t:town j:job_
> my {r} {n} lives in {t} and works as a {j} | my {r} is called {n} and lives in {t} | my {r}, who lives in {t}, is a {j} | my {r} {n} is a {j} in {t} | I have a {r} in {t}, {n}, who is a {j} | {n}, my {r}, moved to {t} to work as a {j} | my {r}'s name is {n}; {n} is a {j} | my {r} {n} became a {j} | my {r} works as a {j} in {t}
t? where does my {r} live | in which city does my {r} live | where is my {r} based | where's my {r}
t~ my {r}'s city
t! my {r} moved to {t} | my {r} lives in {t} now
j? what does my {r} do | what does my {r} do for a living | what is my {r}'s job | what does my {r} work as | which job does my {r} have
j~ my {r}'s job
j! my {r} is a {j} now | my {r} switched jobs and is a {j}
n? what's my {r}'s name | what is my {r} called | who is my {r} | what's the name of my {r} | how is my {r} called
n~ my {r}'s name

s:anyone f:food d:drink
> {s_} favourite food is {f} | {s} [love] {f} | {s} [like] {f} best | nothing beats {f}, says {s} | {s} [be] crazy about {f} | {s} could eat {f} every day | {s} [drink] nothing but {d} | {s_} favourite drink is {d} | {s} [prefer] {f} to everything else | {s} always [have] {f} with {d} | for {s} it has to be {f} | {s} [be] into {f} | {s} [order] {f} every time | what {s} [like] most is {f}
f? what's {s_} favourite food | what food [do] {s} like best | what [do] {s} love to eat | what does {s_} favourite meal contain | what [do] {s} like to eat | which food [do] {s} like most | what could {s} eat every day
f~ {s_} favourite food
f! {s} [prefer] {f} now | {s_} favourite food is {f} now | {s} [be] over that and [love] {f} now
d? what [do] {s} drink | what's {s_} favourite drink | what [do] {s} like to drink
d~ {s_} favourite drink
d! {s} switched to {d} | {s} [drink] {d} now

t:thing m:material p:person y:year
> {t} is made of {m} | {t}, made of {m}, was built by {p} | {p} built {t} in {y} | {t} was built in {y} by {p} | {t} was made by {p} out of {m} | in {y} {p} made {t} | {t} dates from {y} | {p} is the one who built {t} | {t} is a {m} thing from {y} | {p} made {t} from {m} back in {y}
m? what is {t} made of | which material is {t} | what did {p} make {t} from | what material is {t} made of
m~ the material of {t}
p? who built {t} | who made {t} | by whom was {t} built | who is the maker of {t}
p~ the maker of {t}
y? when was {t} built | in which year was {t} made | how old is {t} | what year is {t} from | from which year is {t}

g:group d:schedule t:time p:place
> the {g} meets {d} at {t} in {p} | {g} is {d} at {t} | we have {g} {d} in {p} | the {g} practises {d} at {t} | the {g} gets together {d} | {d} at {t} there is {g} in {p} | {g} starts at {t} {d} | {g} takes place {d}, in {p} | I go to the {g} {d} at {t}
d? when does the {g} meet | how often does the {g} meet | on which days is {g} | when do I have {g} | which day is {g}
d! the {g} meets {d} now | {g} was moved, it's {d}
t? what time does the {g} meet | at what time is {g} | when does {g} start | what time is {g}
t! {g} starts at {t} now | the {g} now meets at {t}
p? where does the {g} meet | where is {g} | where do I have to go for {g} | where does {g} take place
p! the {g} meets in {p} now | {g} moved to {p}

t:taskthing p:person d:dayish
> {p} is responsible for the {t} | {p} takes care of the {t} | the {t} is {p_} job | {p} does the {t}, due on {d} | {p} has to finish the {t} by {d} | the {t} has to be done by {d} | the {t} is due on {d} | deadline for the {t}: {d} | {p} owns the {t} | we assigned the {t} to {p} | {t}: {p}, {d} | {p} will hand in the {t} on {d} | I need the {t} by {d} | we want the {t} by {d}, {p} does it | please finish the {t} by {d} | the {t} must be ready by {d} | action item: {p} finishes the {t} by {d}
p? who is responsible for the {t} | who takes care of the {t} | who does the {t} | whose job is the {t} | who owns the {t} | who is doing the {t} | who has to finish the {t} | who will hand in the {t}
p! {p} does the {t} instead | {p} took over the {t} | the {t} went to {p} | we gave the {t} to {p}
d? when is the {t} due | by when must the {t} be done | what's the deadline for the {t} | until when do we have time for the {t} | when does the {t} have to be ready | when do I have to hand in the {t} | when do I need the {t}
d~ the deadline for the {t} | the due date of the {t}
d! the deadline for the {t} moved to {d} | the {t} is due on {d} now | we have until {d} for the {t} | they extended the deadline for the {t} to {d}

x:object n:count s:shopsize
> the {x} comes in {n} colours | I need the {x} in size {s} | my size for the {x} is {s} | the {x} fits in size {s} | I ordered {n} of the {x} in {s} | size {s} for the {x}, please | I wear the {x} in {s} | the {x} is too small in anything but {s}
s? what size is the {x} | which size do I need for the {x} | in which size do I need the {x} | what size of the {x} did I order | what's my size for the {x}
s! I need the {x} in {s} instead | size {s} fits better for the {x}
n? how many colours does the {x} come in | how many of the {x} did I order

l:town k:town d:duration n:length
> it's {n} from {k} to {l} | the drive from {k} to {l} takes {d} | from {k} to {l} it's {n} | {l} is {n} from {k} | {k} to {l}: {d} | it took us {d} to get from {k} to {l} | the train needs {d} from {k} to {l} | the distance between {k} and {l} is {n} | you need {d} to go from {k} to {l}
n? how far is it from {k} to {l} | how far is {l} from {k} | what is the distance between {k} and {l} | how many kilometres is it from {k} to {l}
d? how long does it take from {k} to {l} | how long is the trip from {k} to {l} | how long do we need from {k} to {l} | how much time does it take to get from {k} to {l}

w:weatherplace t:temperature
> it's {t} in {w} today | {w} has {t} today | the thermometer in {w} says {t} | in {w} it's {t} | we had {t} in {w} this morning | it was {t} in {w} last night | {w} reached {t} | {t} in {w}, they say | the temperature in {w} is {t}
t? how warm is it in {w} | what's the temperature in {w} | how hot is it in {w} | what does the thermometer in {w} say | how many degrees is it in {w}
t~ the temperature in {w}
t! it's {t} in {w} now | it dropped to {t} in {w} | in {w} it went up to {t}

h:householdthing p:person s:spot
> the {h} is {s} | you'll find the {h} {s} | I keep the {h} {s} | look {s} if you need the {h} | {p} moved the {h}, it's {s} now | if you need the {h}, it's {s} | the {h} hangs {s} | we store the {h} {s} | {s} you'll find the {h} | the {h} should be {s} | the {h}? {s} | the {h}: {s} | I hid the {h} {s} | I've put the {h} {s} for you | last time I saw the {h} it was {s} | the {h} lives {s} | there's a {h} {s} | the {h} got put {s} by {p}
s? where is the {h} | where do we keep the {h} | where do I find the {h} | where did I put the {h} | where's the {h} | where can I get the {h} | where has the {h} gone | where does the {h} live | where should I look for the {h} | where did I hide the {h}
s~ the {h}
s! the {h} is {s} now | I moved the {h}, it's {s} | {p} put the {h} {s} | you'll find the {h} {s} now

v:vehicle2 p:parking
> I parked {v} {p} | {v} is parked {p} | {v} is {p} | we left {v} {p} | you'll find {v} {p} | {v} stands {p} | I'm parked {p} | {p} is where I left {v} | remember that {v} is {p} | {v} got a spot {p}
p? where is {v} | where did I park {v} | where did I park | where did we leave {v} | where is {v} parked | on which level is {v} | where do I find {v}
p~ {v}
p! I moved {v}, it's {p} now | {v} is {p} now | I had to repark {v}: {p}

s:subjectschool k:person r:room t:dayish
> {s} is with {k} in {r} | {k} teaches {s} | we have {s} in {r} | {s} is taught by {k} | {s} is on {t} in {r} | on {t} we have {s} with {k} | the {s} exam is on {t} in {r} | {k} is our {s} teacher | {s}: {k}, {r} | our {s} class got moved to {r}
k? who teaches {s} | who is the {s} teacher | who do we have in {s} | with whom is {s} | who is our {s} teacher
k~ our {s} teacher
k! {k} took over {s} | {s} is with {k} now
r? which room is {s} in | where is {s} | in which room do we have {s} | where do we have {s}
r! {s} moved to {r} | {s} is in {r} now
t? when is {s} | on which day do we have {s} | which day is {s} | when is the {s} exam
t! {s} was moved to {t}

x:subscription p:price d:ordinalday m:monthyear
> the {x} costs {p} a month | I pay {p} a month for {x} | {x} is {p} a month | {x} renews on {d} for {p} | my {x} subscription ends in {m} | {x} takes {p} from my account on {d} | {x}: {p}, every month on {d} | we spend {p} a month on {x} | {x} runs until {m} | I cancelled {x}, it runs until {m} | the contract for {x} ends in {m}
p? how much is {x} | what do I pay for {x} | how much does {x} cost | what does {x} cost me | how much do we spend on {x} | how expensive is {x}
p~ the price of {x}
p! {x} went up to {p} | {x} costs {p} now | they raised the price of {x} to {p}
d? when does {x} renew | on which day does {x} take the money | when is {x} paid
m? when does {x} end | until when does {x} run | when does my {x} subscription end | how long does {x} still run
m! {x} was extended until {m}

strict p:person g:game r:score2
> {p} won the {g} {r} | the {g} ended {r} for {p} | {p} beat us {r} at {g} | {p} lost the {g} {r} | we drew the {g} {r} | the {g} score was {r} | {r}: that's how the {g} ended | the final score of the {g} was {r} | in the {g} {p} scored {r}
r? how did the {g} end | what was the score of the {g} | what was the result of the {g} | what's the score of the {g} | with what score did the {g} end
r~ the {g} score | the result of the {g}
r! the {g} score was corrected to {r} | the {g} actually ended {r}
p? who won the {g} | who lost the {g} | who played the {g}

n:count x:plural s:spot w:anyone
> there are {n} {x} {s} | {s} there are {n} {x} | we have {n} {x} {s} | I counted {n} {x} {s} | {n} {x} are left | we have {n} {x} left | {w} [have] {n} {x} | {w} [own] {n} {x} | {w} [need] {n} {x} | {n} {x} fit {s} | I bought {n} {x} and put them {s} | {w} ordered {n} {x} | {w} found {n} {x} {s} | I still have {n} {x} | {w} collected {n} {x} | only {n} {x} are missing
n? how many {x} are there | how many {x} do we have | how many {x} are left | how many {x} did I count | what's the number of {x} | how many {x} is it | how many {x} were there
n~ the number of {x}
n! there are only {n} {x} left | I counted again: {n} {x} | make it {n} {x} | we have {n} {x} now | somebody took some, there are {n} {x} now
s? where are the {x} | where did I put the {x} | where can I find the {x}

a:title2 b:person
> {b} wrote {a} | {a} is by {b} | {a} was written by {b} | {b} is the author of {a} | the song {a} is by {b} | I'm reading {a} by {b} | I just finished {a}, a book by {b} | the film {a} was made by {b} | my favourite book is {a} by {b} | we are going to watch {a} by {b} tonight
b? who wrote {a} | who is the author of {a} | who is {a} by | who made {a} | by whom is {a}
b~ the author of {a}
a? what did {b} write | what am I reading | which book is by {b} | which book did {b} write | what is by {b} | what are we going to watch

strict c:company k:person t:town n:count
> {c} has its headquarters in {t} | {c} is a company from {t} with {n} employees | {k} founded {c} in {t} | {c}, founded by {k}, has {n} employees | {c} employs {n} people in {t} | the boss of {c} is {k} | {k} runs {c} | {k} is the CEO of {c} | {c} is run by {k} from {t} | {n} people work at {c} | {k} is in charge at {c} | {k} set up {c}
t? where is {c} | where does {c} have its headquarters | where is {c} based | in which city is {c} | where does {c} come from
t~ the headquarters of {c}
t! {c} moved its headquarters to {t} | {c} moved to {t}
k? who founded {c} | who runs {c} | who is the boss of {c} | who is the CEO of {c} | who is in charge at {c} | who set up {c}
k~ the boss of {c} | the CEO of {c} | the head of {c}
k! {k} is the new boss of {c} | {k} took over {c} | {k} runs {c} now
n? how many people work at {c} | how many employees does {c} have | how big is {c} | how many people does {c} employ
n~ the number of employees of {c}
n! {c} has {n} employees now | {c} grew to {n} people

strict c:placename k:placename
> the capital of {c} is {k} | {k} is the capital of {c} | {c} has {k} as its capital | {c}'s capital is {k} | the king of {c} lives in {k} | in {c} the capital is called {k} | {k} became the capital of {c} | the biggest city of {c} is {k} | {c} is ruled from {k} | {c}, whose capital is {k}, is small
k? what is the capital of {c} | what's the capital of {c} | what is {c}'s capital | which city is the capital of {c} | from where is {c} ruled | what is the biggest city of {c} | where does the king of {c} live
k~ the capital of {c} | {c}'s capital
k! the capital of {c} was moved to {k} | {c} has a new capital, {k}

s:server v:version p:port u:ip
> {s} runs version {v} | {s} is on {v} | {s} listens on port {p} | {s} has the IP {u} | {s} is at {u}:{p} | {s} was upgraded to {v} | we deployed {v} to {s} | {s} uses port {p} | the address of {s} is {u} | {s} ({u}) runs {v} on port {p} | ssh to {u} for {s} | you reach {s} under {u}, port {p} | {s} still runs {v}
v? which version does {s} run | what version is {s} on | which version is on {s} | what runs on {s} | what did we deploy to {s}
v~ the version of {s}
v! {s} was updated to {v} | {s} runs {v} now | we rolled {s} back to {v}
p? which port does {s} use | what port does {s} listen on | on which port is {s} | what's the port of {s}
p~ the port of {s}
p! {s} now uses port {p} | {s} moved to port {p}
u? what's the IP of {s} | what is the address of {s} | which IP does {s} have | under which address do I reach {s} | how do I reach {s}
u~ the IP of {s} | the address of {s}
u! {s} has a new IP, {u} | {s} moved to {u} | the IP of {s} changed to {u}

strict p:person l:language i:instrument
> {p} speaks {l} and plays the {i} | {p} is learning {l} | {p} speaks fluent {l} | {p_} mother tongue is {l} | {p} plays the {i} in a band | {p} took up the {i} | {p} knows some {l} | at home {p} speaks {l} | {p} practises the {i} every night | {p} has played the {i} since school | {l} is what {p} speaks at home | {p} gives {i} lessons | {p} grew up speaking {l}
l? what language does {p} speak | which language is {p} learning | what is {p_} mother tongue | which language does {p} know | what does {p} speak at home
l~ {p_} language | {p_} mother tongue
l! {p} gave that up and learns {l} now | {p} switched to {l}
i? what instrument does {p} play | which instrument does {p} play | what does {p} play | what does {p} practise | what did {p} take up
i~ {p_} instrument
i! {p} switched to the {i} | {p} plays the {i} now

d:errand
> we decided to {d} | we agreed to {d} | the plan is to {d} | our plan is to {d} | let's {d} | tonight we {d} | tomorrow we want to {d} | it was decided to {d} | the team wants to {d} | I'm planning to {d} | I'd like to {d} | my goal is to {d} | the next step is to {d} | first we have to {d} | the doctor told me to {d} | my boss asked me to {d} | I was told to {d}
d? what did we decide | what's the plan | what do we want to do | what did we agree to do | what is our plan | what am I planning to do | what is my goal | what is the next step | what was I told to do | what do we have to do first
d~ the plan | our plan | the next step
d! change of plan, we {d} | instead we {d} | we'd rather {d}

m:plainnoun v:anyvalue
> {m}: {v} | {m} {v} | {m} = {v} | {m} is {v} | {m} - {v} | remember {m}: {v} | note: {m} {v} | note to self: {m} is {v} | {m} will be {v} | {m} was {v} | my {m} is {v} | our {m} is {v} | the {m} is {v} | the {m}: {v} | so the {m} is {v} | save this: {m} {v} | {m} equals {v} | {m} ... {v} | for the record, the {m} is {v} | the {m} happens to be {v} | keep in mind that the {m} is {v} | {v} is the {m} | {v} is our {m} | {v} = {m} | you should know that the {m} is {v} | the {m}, in case anyone asks, is {v} | I keep forgetting the {m}: {v} | write down {m} {v} | please remember the {m} {v}
v? what is the {m} | what's the {m} | what's my {m} | what was the {m} | {m} | the {m} | tell me the {m} | remind me of the {m} | do you know the {m} | what is our {m} | what did I say about the {m} | what did I say the {m} was | what {m} did I give you | which {m} did I mention | can you repeat the {m} | I forgot the {m} | what did I tell you about the {m}
v~ the {m} | my {m} | our {m}
v! the {m} is {v} now | new {m}: {v} | I changed the {m} to {v} | my {m} is {v} now | the {m} has changed to {v}

strict s:anyone o:object m:adjnoun
> {s} lost {s_} {o} {m} | {s} found a {o} {m} | {s} bought a new {o} {m} | {s} left {s_} {o} {m} | {s} forgot the {o} {m} | {s} saw a {o} {m} | {s} dropped the {o} {m} | {s} stored {s_} {o} {m} | {s} picked up a {o} {m} | {s} hid the {o} {m} | the {o} {s} bought is {m} | {s} put {s_} {o} {m} | {s} always [keep] {s_} {o} {m}
m? where did {s} lose the {o} | where did {s} find the {o} | where is {s_} {o} | where did {s} leave the {o} | where did {s} forget the {o} | where did {s} put the {o} | where did {s} hide the {o} | where did {s} see the {o}
o? what did {s} lose | what did {s} find | what did {s} forget | what did {s} see | what did {s} drop | what did {s} pick up | what did {s} hide | what did {s} leave

strict s:person v:gift w:person
> {s} gave {v} to {w} | {s} gave {w} {v} | {w} got {v} from {s} | {w} received {v} from {s} | {s} sent {w} {v} | {s} sold {v} to {w} | {s} owes {w} {v} | {s} promised {w} {v} | {s} showed {w} {v} | {s} brought {w} {v} | {v} was given to {w} by {s} | {s} left {w} {v} | {s} made {v} for {w} | {s} bought {v} for {w} | {s} stole {v} from {w} | {w} was given {v} by {s} | {s} returned {v} to {w} | {s} taught {w} how to use {v}
v? what did {s} give to {w} | what did {w} get from {s} | what did {w} receive | what did {s} send {w} | what did {s} bring {w} | what did {s} promise {w} | what did {s} give {w} | what did {s} make for {w} | what did {s} buy for {w}
w? who got {v} | to whom did {s} give {v} | who did {s} give {v} to | who received {v} | who was given {v}
s? who gave {v} to {w} | who gave {w} {v} | from whom did {w} get {v} | who did {w} get {v} from | who sent {v}

strict s:person v:vp t:relday
> {s} wants to {v} {t} | {s} is going to {v} {t} | {s} plans to {v} {t} | {t} {s} will {v} | {s} hopes to {v} {t} | {s} has to {v} {t} | {s} would like to {v} {t} | {s} intends to {v} {t} | {s} decided to {v} {t} | {s} said he would {v} {t} | {s} asked me to {v} {t} | {s} reminded me to {v} {t} | {s} forgot to {v} | {s} offered to {v} {t} | {s} refused to {v} | {s} is about to {v} | {s} used to {v} | {s} might {v} {t} | {s} can't wait to {v} | {s} is supposed to {v} {t} | {s} needs somebody to {v}
v? what does {s} want to do | what is {s} going to do | what does {s} plan to do | what will {s} do | what does {s} have to do | what did {s} decide to do | what did {s} ask me to do | what did {s} forget to do | what did {s} offer to do | what is {s} supposed to do
v~ {s_} plan
v! {s} would rather {v} | {s} changed his mind and wants to {v} | {s} is going to {v} instead
t? when does {s} want to {v} | when is {s} going to {v} | when will {s} {v} | when does {s} have to {v}
s? who wants to {v} | who is going to {v} | who plans to {v} | who will {v}

v:vp t:reltime
> remind me to {v} {t} | I have to {v} {t} | don't let me forget to {v} {t} | {t} I need to {v} | I must {v} {t} | I want to {v} {t} | please remind me to {v} {t} | I should {v} {t} | I plan to {v} {t} | to do {t}: {v} | {t}: {v} | I promised to {v} {t} | I'm going to {v} {t} | we have to {v} {t} | I still have to {v} {t} | I've decided to {v} {t} | I was asked to {v} {t} | let's {v} {t} | we'll {v} {t}
t? when do I have to {v} | when should I {v} | when do I need to {v} | when did I want to {v} | when must I {v} | when will we {v} | when do I {v} | when am I going to {v}
t! I'll {v} {t} instead | I can only {v} {t} | I have to {v} {t} now
v? what do I have to do {t} | what should I do {t} | what do I need to do {t} | what's to do {t} | what did I want to do {t} | what did I promise to do {t}

g:person h:gift e:event
> {g} brings {h} to {e} | {g} is bringing {h} to {e} | for {e}, {g} brings {h} | {g} will bring {h} | at {e} {g} takes care of {h} | {g} said he'd bring {h} to {e} | {h} will be brought by {g} | {g} agreed to bring {h} to {e} | {g} signed up for {h}
h? what does {g} bring | what is {g} bringing | what will {g} bring to {e} | what does {g} bring to {e} | what did {g} sign up for | what does {g} take care of
h! {g} brings {h} instead | {g} is bringing {h} now
g? who brings {h} | who is bringing {h} | who will bring {h} | who takes care of {h} | who signed up for {h}
g! {g} brings {h} instead | {g} will bring {h} now

s:person r:role2 e:teamorg
> {s} is the {r} of {e} | {s} became {r} of {e} | {s} was elected {r} of {e} | {e} has a new {r}, {s} | {s} is {r} at {e} | the {r} of {e} is {s} | {e} made {s} {r} | {s} has been {r} of {e} for years | {s} took the job as {r} of {e} | as {r} of {e}, {s} travels a lot | {s}, the {r} of {e}, called | {e} is looking for a new {r} because {s} left | {s} resigned as {r} of {e} | {s} serves as {r} of {e} | {s} works as the {r} of {e}
s? who is the {r} of {e} | who's the {r} at {e} | who is {e}'s {r} | who became {r} of {e} | what is the name of the {r} of {e} | who works as the {r} of {e} | which person is the {r} of {e}
s~ the {r} of {e} | {e}'s {r}
s! {s} took over as {r} of {e} | {s} is the {r} of {e} now | {s} was elected {r} of {e}, the old one left | {e} has a new {r}: {s}
r? what is {s_} role at {e} | what is {s} at {e} | which position does {s} have at {e} | what does {s} do at {e}

p:town q:town t:time v:vehicle
> the {v} from {p} to {q} leaves at {t} | the {t} {v} goes from {p} to {q} | we take the {v} to {q} at {t} | the {v} to {q} leaves {p} at {t} | my {v} leaves for {q} at {t} | there's a {v} from {p} to {q} at {t} | the last {v} to {q} goes at {t} | the first {v} to {q} is at {t} | our {v} to {q} departs at {t}, change in {p} | I'm taking the {t} {v} to {q}
t? when does the {v} to {q} leave | what time is the {v} to {q} | at what time does the {v} to {q} go | when do we leave for {q} | which {v} to {q} am I taking | when is the last {v} to {q}
t! the {v} to {q} leaves at {t} now | the {v} to {q} is delayed until {t} | we take the {v} to {q} at {t} instead
p? where does the {v} to {q} leave from | from where does the {v} to {q} leave | where do we change
q? where does the {v} go | where do we go by {v} | where am I going by {v}

h:org c:time d:time n:price
> {h}: check-in from {c}, check-out by {d} | check-in at {h} is at {c} and check-out at {d} | we stay at {h} for {n} a night | {h} costs {n} a night | at {h} you can check in from {c} | we booked {h}, check-in at {c} | a night at {h} is {n} | {h} charges {n} per night, breakfast included | you have to leave {h} by {d} | {h} wants us out by {d} | our room at {h} is {n} a night
c? when can we check in at {h} | when is check-in at {h} | what time is check-in | from when can we check in
c! {h} moved check-in to {c}
d? when do we have to check out of {h} | when is check-out | what time is check-out at {h} | by when do we have to leave {h}
d! check-out at {h} is at {d} now
n? how much is {h} | what does a night at {h} cost | how much does {h} charge | how much is the room at {h}
n! {h} costs {n} a night now | the price at {h} went up to {n}
h? where do we stay | which hotel did we book | where are we staying

r:dish n:count q:quantity2 f:food
> the {r} needs {q} of {f} | for the {r} you need {q} of {f} | put {q} of {f} into the {r} | the {r} recipe takes {q} of {f} | add {q} of {f} to the {r} | the {r} serves {n} people | the {r} recipe is for {n} people | {q} of {f} go into the {r} | I use {q} of {f} for the {r} | you can make the {r} with {q} of {f} | {r}: {q} {f} | take {q} of {f} for the {r}
q? how much {f} does the {r} need | how much {f} goes into the {r} | how much {f} do I need for the {r} | what amount of {f} is in the {r} | how much {f} do I take | how much {f} should I add to the {r}
q! take {q} of {f} instead | I now use {q} of {f} for the {r} | {q} of {f} is enough for the {r}
n? how many people does the {r} serve | for how many people is the {r} | how many can eat from the {r}
f? what does the {r} need {q} of | what do I add to the {r}

s:person i:illness d:relday2
> {s} has {i} | {s} has had {i} since {d} | {s} is down with {i} | {s} caught {i} | {s} is recovering from {i} | {s} can't come, it's {i} | {s} has been suffering from {i} | {s} went to the doctor because of {i} | the doctor says {s} has {i} | {s} is at home with {i} | {s} stayed in bed with {i} | {s} was treated for {i}
i? what does {s} have | what is wrong with {s} | which illness does {s} have | what did {s} catch | why is {s} at home | what does {s} suffer from | what's the matter with {s}
i~ {s_} illness
i! it turned out to be {i}, what {s} has | it is {i} after all that {s} has | the doctor now says {s} has {i}

c:person x:vehicle3 y:brand k:colour
> {c} drives a {k} {y} | {c} bought a {y} | {c} has a {k} {y} | {c} drives {x} | {c_} car is a {k} {y} | {c} sold the old car and bought a {y} | {c} got a {y} as a company car | {c} traded the old one in for a {k} {y} | {c} comes in a {k} {y} | look for a {k} {y}, that's {c_} car | {c} is proud of the new {y}
y? what car does {c} drive | which car does {c} have | what does {c} drive | what make is {c_} car | what kind of car is {c_} | what brand does {c} drive
y~ {c_} car
y! {c} bought a {y} | {c} traded it in for a {y} | {c} drives a {y} now
k? what colour is {c_} car | which colour is {c_} car | what color is the car of {c}
k~ the colour of {c_} car

a:anyone d:dayish y:year
> {a_} birthday is on {d} | {a} [be] born on {d} {y} | {a} was born in {y} | {d} is {a_} birthday | {a} [have] a birthday on {d} | {a} [celebrate] on {d} | {a_} birthday: {d} | on {d} it's {a_} birthday | don't forget {a_} birthday on {d} | {a} came into the world in {y} | {y} is the year {a} was born | {a_} big day is on {d}
d? when is {a_} birthday | what day is {a_} birthday | on which day is {a_} birthday | when [do] {a} have a birthday | when was {a} born | on what day [do] {a} celebrate
d~ {a_} birthday
y? in which year was {a} born | what year was {a} born | which year was {a} born in
y~ {a_} year of birth

strict n:person t:textvalue
> {n} says the word is {t} | the magic word is {t} | {n}'s motto is "{t}" | the code word for {n} is {t} | {n} wrote {t} on the wall | the secret word is {t} | {n} always says {t} | {n} answered {t} | the sign says {t} | our slogan is {t} | the answer is {t} | the last word of {n} was {t} | on the note it says {t} | my safe word is {t} | the title will be {t} | {n} named it {t}
t? what is the magic word | what's the secret word | what does {n} say | what did {n} write | what is the code word for {n} | what does the sign say | what is our slogan | what's the answer | what did {n} answer | what does it say on the note | what did {n} name it | what's my safe word

x:object p:person q:person
> the {x} belongs to {p}, not to {q} | the {x} is {p_}, not {q_} | it's {p} who owns the {x} | the {x} is {p_} | {p} owns the {x} | {p} is the owner of the {x} | {p} has had the {x} for years | whose {x} is it? it's {p_} | the {x} used to be {q_}, now it's {p_} | {q} sold the {x} to {p} | {q} inherited the {x} from {p} | the {x} came from {p} | I got the {x} from {p} | {p} left us the {x}
p? whose {x} is it | who owns the {x} | who does the {x} belong to | who is the owner of the {x} | to whom does the {x} belong | whose is the {x}
p~ the owner of the {x} | the {x}'s owner
p! the {x} belongs to {p} now | {p} bought the {x} | {p} is the new owner of the {x}

i:object s:spot u:object
> take the {i} out of the box and put it {s} | the {i} and the {u} are {s} | behind the door there's a {i}, {s} a {u} | if you look {s}, you'll see the {i} | when I came home the {i} was {s} | my mother says the {i} is {s} | yesterday I put the {i} {s} because I needed space | you won't believe it but the {i} was {s} all the time | I'm pretty sure the {i} is {s} | as far as I remember the {i} is {s} | we finally found the {i}: it was {s} | after the party the {i} ended up {s} | there is nothing left but a {i} {s} | go {s} and get the {i} | please put the {i} {s} | could you put the {i} {s} | the {i} goes {s} | the {i} has its place {s} | nobody knows that the {i} is {s} | keep the {i} {s}
s? where is the {i} | where's the {i} | where did I put the {i} | where should the {i} go | where do I get the {i} | where was the {i} | where did we find the {i} | where does the {i} go | where did the {i} end up | where do you put the {i}
s~ the {i}
s! the {i} is {s} now | somebody moved the {i}, it's {s} | put the {i} {s} instead | I have the {i} {s} now

f:org c:phone h:time k:time
> {f} is open from {h} to {k} | {f} opens at {h} and closes at {k} | {f}: {h} to {k} | you can go to {f} between {h} and {k} | {f} closes at {k} | {f} stays open until {k} | {f} opens its doors at {h} | {f} shuts at {k} | the doors of {f} open at {h} | last orders at {f} are at {k} | {f} doesn't open before {h} | be at {f} before {k}, then they close
h? when does {f} open | what time does {f} open | at what time does {f} open | from when is {f} open | how early can I go to {f} | when do the doors of {f} open
h~ the opening time of {f} | {f}'s opening time
h! {f} opens at {h} now | from now on {f} opens at {h}
k? when does {f} close | until when is {f} open | what time does {f} close | how long is {f} open | how late is {f} open | when does {f} shut
k~ the closing time of {f} | {f}'s closing time
k! {f} closes at {k} now | {f} now stays open until {k}

strict n:firstname o:firstname t:team
> {n} is the captain of {t}, {o} is the goalkeeper | {n} plays for {t} | {n} left to play for {t} | {n} coaches {t} | {n} joined {t} this season | {t} signed {n} | {n} scored for {t} | {n} replaced {o} at {t} | {n} supports {t} | {n} cheers for {t} | {n} has been with {t} for years | {n} transferred to {t} | {n} was traded to {t}
t? who does {n} play for | which team is {n} in | what team is {n} with | for whom does {n} play | which team does {n} coach | which team did {n} join | which team does {n} support
t~ {n_} team
t! {n} switched to {t} | {n} plays for {t} now | {n} signed with {t}
n? who is the captain of {t} | who coaches {t} | who joined {t} | who plays for {t}
o? who is the goalkeeper of {t}

a:contrast b:contrast n:object u:gift v:gift
> the {a} {n} holds {u}, the {b} one {v} | in the {a} {n} is {u} and in the {b} one {v} | the {a} {n} is for {u}, the {b} {n} is for {v} | {u} goes into the {a} {n} and {v} into the {b} one | put {u} into the {a} {n}, {v} into the {b} {n} | the {a} {n} contains {u} while the {b} one contains {v}
u? what is in the {a} {n} | what does the {a} {n} hold | what is the {a} {n} for | what goes into the {a} {n} | what does the {a} {n} contain
v? what is in the {b} {n} | what does the {b} {n} hold | what is the {b} {n} for | what goes into the {b} {n} | what does the {b} {n} contain
a? in which {n} is {u} | which {n} is for {u} | which {n} holds {u} | where does {u} go

a:contrast b:contrast n:object p:person q:person
> the {a} {n} is {p_} and the {b} one is {q_} | the {a} {n} belongs to {p}, the {b} one to {q} | {p} has the {a} {n} and {q} the {b} one | {p} gets the {a} {n}, {q} the {b} | the {a} {n} is for {p}, the {b} one for {q} | {p} drives the {a} {n} while {q} drives the {b} one | {p} chose the {a} {n}, {q} preferred the {b} one | {p} wants the {a} {n} and {q} the {b}
p? who has the {a} {n} | whose is the {a} {n} | who gets the {a} {n} | who does the {a} {n} belong to | for whom is the {a} {n}
q? who has the {b} {n} | whose is the {b} {n} | who gets the {b} {n} | who does the {b} {n} belong to
a? which {n} is {p_} | which {n} does {p} have | which {n} does {p} get | which {n} is for {p}
b? which {n} is {q_} | which {n} does {q} have | which {n} does {q} get

strict s:person c:coords t:textplace
> {s} is at {c} | the meeting point is {c} | the coordinates of {t} are {c} | {t}: {c} | {t} is at {c} | you find {t} at {c} | GPS for {t}: {c} | the treasure is at {c} | {c} is where {t} is | set the GPS to {c} for {t} | our position is {c} | the boat is at {c}
c? what are the coordinates of {t} | where is {t} | where is {s} | what's the position of {t} | where is the meeting point | where is the treasure | what is our position | where is the boat
c! {t} moved to {c} | the new coordinates of {t} are {c}

x:metric v:metricvalue y:period
> {x} was {v} in {y} | in {y} {x} was {v} | {x} rose to {v} in {y} | {x} fell to {v} in {y} | {x} reached {v} in {y} | for {y} {x} is {v} | {x} {y}: {v} | we had {x} of {v} in {y} | {y} {x}: {v} | {x} came in at {v} for {y} | {x} grew to {v} by {y} | we expect {x} of {v} in {y} | the target for {x} in {y} is {v} | {x} hit {v} in {y}
v? what was {x} in {y} | how high was {x} in {y} | what was {x} for {y} | how much was {x} in {y} | {x} in {y} | what did {x} reach in {y} | what's {x} for {y} | what do we expect for {x} in {y}
v~ {x} in {y}
v! {x} in {y} was corrected to {v} | {x} for {y} was revised to {v} | we restated {x} for {y}: {v}

p:person q:person w:thingtheydo d:dayish
> {p} and {q} {w} on {d} | {p} {w} with {q} | {q} {w} on {d} | on {d} {q} and {p} {w} | {q} will {w} with {p} on {d} | {p} is going to {w} with {q} | {p}, {q} and I {w} on {d} | {p} would like to {w} with {q} | {p} invited {q} to {w} on {d}
d? when do {p} and {q} {w} | when does {q} {w} | on which day do {p} and {q} {w} | which day do {p} and {q} {w} | when will {q} {w}
d! {p} and {q} {w} on {d} instead
q? who does {p} {w} with | with whom does {p} {w} | who will {w} with {p} | who did {p} invite to {w}

l:languagefact a:word b:textvalue
> {a} means {b} in {l} | in {l}, {a} means {b} | the {l} word for {b} is {a} | {b} is {a} in {l} | {l} for {b} is {a} | "{a}" is {l} for {b} | {a} stands for {b} | {a} is short for {b} | we say {a} for {b}
b? what does {a} mean | what does {a} mean in {l} | what does {a} stand for | what is {a} short for | what is the meaning of {a}
a? what is {b} in {l} | what is the {l} word for {b} | how do you say {b} in {l} | what do we say for {b}

s:anyone f:food g:food
> {s} [prefer] {f} to {g} | {s} [do]n't like {g} but [love] {f} | {s} [like] {f} more than {g} | {s} chose {f} over {g} | {s} [want] {f}, not {g} | {s} would rather have {f} than {g} | {s} [hate] {g} and [love] {f} | {s} ordered {f} instead of {g} | {s} never [touch] {g}, only {f} | {f} is better than {g}, says {s}
f? what [do] {s} prefer | what [do] {s} like more | what [do] {s} love | what did {s} choose | what [do] {s} want | what would {s} rather have | what did {s} order | which food [do] {s} prefer
g? what [do] {s} hate | what [do] {s} not like | what [do] {s} like less | what does {s} never touch

a:person b:person n:plainnoun u:anyvalue v:anyvalue
> {a_} {n} is {u} and {b_} is {v} | {a_} {n} is {u}, {b_} is {v} | the {n} of {a} is {u}, that of {b} is {v} | {n}: {u} for {a}, {v} for {b} | {a} has the {n} {u}, {b} has {v} | for {a} the {n} is {u}, for {b} it's {v} | while {a_} {n} is {u}, {b_} is {v} | {a}: {n} {u}; {b}: {n} {v} | {a_} {n} is not {v} but {u}, {v} is {b_}
u? what is {a_} {n} | what's {a_} {n} | what is the {n} of {a} | which {n} does {a} have | {a_} {n} | what {n} does {a} have
u~ {a_} {n} | the {n} of {a}
u! {a_} {n} is {u} now | {a} changed the {n} to {u}
v? what is {b_} {n} | what's {b_} {n} | what is the {n} of {b} | which {n} does {b} have | {b_} {n} | what {n} does {b} have
v~ {b_} {n} | the {n} of {b}
a? whose {n} is {u} | who has the {n} {u}
b? whose {n} is {v} | who has the {n} {v}

a:person b:person c:person t:town
> {a} and {b} both live in {t} | {a} lives in {t}, and so does {b} | {a} lives in {t} and {b} does too | like {a}, {b} lives in {t} | {a}, {b} and {c} share a flat in {t} | neither {a} nor {b} likes it, but they live in {t} | {a} followed {b} to {t}
t? where does {a} live | where does {b} live | where do {a} and {b} live | in which town do {b} and {a} live | in which city does {a} live

strict n:ordinalword x:object w:gift p:person
> the {n} drawer holds {w} | {w} is in the {n} drawer | the {n} prize is {w} | {p} won the {n} prize, {w} | the {n} shelf is for {w} | {p} sits in the {n} row | the {n} box from the left contains {w} | the {n} chapter is about {w} | on the {n} page there is {w} | {p} came in {n} | the {n} speaker is {p} | {p} finished {n} | the {n} door leads to {w} | the {n} item on the list is {w} | {p} is the {n} to speak | my {n} choice is {w} | our {n} stop is {p}'s house
w? what does the {n} drawer hold | what is the {n} prize | what's on the {n} shelf | what is in the {n} box | what is the {n} chapter about | what is in the {n} drawer | what is the {n} item on the list | what is my {n} choice | what is behind the {n} door
p? who won the {n} prize | who is the {n} speaker | who came in {n} | who sits in the {n} row | who finished {n} | who speaks {n}

s:person j:job_ a:time b:time d:schedule
> {s} works from {a} to {b} | {s} works {d} from {a} to {b} | {s} is at work from {a} until {b} | {s_} shift starts at {a} and ends at {b} | {s} has the late shift, {a} to {b} | {d} {s} works until {b} | {s} has to be at work at {a} | {s} gets off work at {b} | {s} only works {d} | {s_} hours are {a} to {b} | {s} is on duty from {a} on | {s} is available {d}
a? when does {s} start work | from when does {s} work | when does {s_} shift start | when does {s} have to be at work | from when is {s} on duty
a! {s} starts at {a} now | {s_} shift starts at {a} instead
b? until when does {s} work | when does {s} get off work | when does {s_} shift end | when does {s} finish work
b! {s} works until {b} now
d? when does {s} work | on which days does {s} work | when is {s} available

x:thing p:vp2 c:person
> {x} needs to be {p} | {x} has to be {p} by {c} | {x} was {p} by {c} | {c} got {x} {p} | {c} had {x} {p} last week | {x} has just been {p} by {c} | {x} is being {p} by {c} | {c} will get {x} {p} | it was {c} who had {x} {p} | {x} was {p} yesterday by {c} | we had {x} {p} by {c}
c? who had {x} {p} | by whom was {x} {p} | who got {x} {p} | who was {x} {p} by | who will have {x} {p}
p? what has to happen to {x} | what was done to {x} | what needs to be done with {x} | what is being done to {x}

s:person g:food t:meal
> {s} had {g} for {t} | {s} always has {g} for {t} | for {t} {s} wants {g} | {s} is making {g} for {t} | {s} cooks {g} for {t} | {t} is {g} today, {s} cooks | there is {g} for {t} | we're having {g} for {t} | I'd like {g} for {t} | {s} ate {g} at {t} | {t}: {g} | {s} invited us to {g} for {t} | {s} brought {g} for {t} | we ordered {g} for {t}
g? what did {s} have for {t} | what does {s} want for {t} | what is there for {t} | what are we having for {t} | what does {s} make for {t} | what's for {t} | what do I want for {t} | what did we order for {t} | what does {s} always have for {t}
g~ {t}
g! we're having {g} for {t} instead | {t} is {g} now | {s} makes {g} for {t} after all

strict c:plainnoun n:count u:plural
> we need {n} {u} for the {c} | you need {n} {u} to get the {c} | it takes {n} {u} to make a {c} | {n} {u} make one {c} | one {c} is {n} {u} | a {c} equals {n} {u} | every {c} has {n} {u} | each {c} comes with {n} {u} | a {c} consists of {n} {u} | there are {n} {u} in a {c} | a {c} lasts {n} {u} | a {c} costs {n} {u}
n? how many {u} do we need for the {c} | how many {u} make a {c} | how many {u} does a {c} have | how many {u} are in a {c} | how many {u} is a {c} | how many {u} does a {c} cost | how many {u} come with a {c}
n! it's {n} {u} for a {c} now | a {c} takes {n} {u} now

r:room2 c:colour p:person
> the {r} is painted {c} | {p} painted the {r} {c} | the walls of the {r} are {c} | we painted the {r} {c} | the {r} has {c} curtains | {p} sleeps in the {r} | the {r} belongs to {p} | {p} wants the {r} {c} | the door of the {r} is {c} | we chose {c} for the {r} | the {r} got a {c} carpet
c? what colour is the {r} | which colour did we choose for the {r} | what colour are the walls of the {r} | what color is the {r} | which colour is the {r} | what colour did we paint the {r}
c~ the colour of the {r}
c! we repainted the {r} in {c} | the {r} is {c} now | {p} wants {c} for the {r} instead
p? who sleeps in the {r} | who painted the {r} | whose is the {r} | who does the {r} belong to

strict p:person m:price x:gift
> {p} owes me {m} | {p} lent me {m} for {x} | I gave {p} {m} for {x} | {p} paid {m} for {x} | {p} still has to give me {m} | {p} won {m} | {p} spent {m} on {x} | I borrowed {m} from {p} | {p} transferred {m} to me | {p} donated {m} | {p} put in {m} | {p} chipped in {m} for {x}
m? how much does {p} owe me | how much did {p} lend me | how much did I give {p} | how much did {p} pay | how much did {p} spend | how much did I borrow from {p} | how much did {p} put in
m! it's {m} now, what {p} owes me | {p} actually paid {m}
x? what did {p} spend the money on | what did {p} pay for | what was the money from {p} for

strict l:langtool v:version c:command
> {l} is at version {v} | we use {l} {v} | to start {l}, run {c} | you start {l} with {c} | {c} starts {l} | run {c} to restart {l} | install {l} with {c} | {l} needs at least version {v} | we upgraded {l} to {v} | the latest {l} is {v} | {l} is pinned to {v} | {l} can be started by {c} | {l}: run {c}
v? which version of {l} do we use | what version is {l} at | which {l} do we need | what is the latest {l} | to what did we upgrade {l} | which version is {l} pinned to
v! we moved {l} to {v} | {l} is at {v} now | we downgraded {l} to {v}
c? how do I start {l} | what starts {l} | which command starts {l} | how do I restart {l} | how do I install {l} | what do I run for {l}
c! start {l} with {c} now | use {c} for {l} instead

s:person k:animal2 c:colour n:animalname
> {s} has a {c} {k} called {n} | {s} got a {k} named {n} | {s_} {k} is called {n} | {n} is {s_} {k} | {s} adopted a {c} {k}, {n} | {s} bought a {k} and named it {n} | {s_} {k} {n} is {c} | {s} walks a {c} {k} called {n} | the {k} of {s} answers to {n} | {s} keeps a {k}, {n} | {n}, the {c} {k}, lives with {s}
n? what is {s_} {k} called | what's the name of {s_} {k} | how is {s_} {k} called | what did {s} name the {k} | which name does {s_} {k} have
n~ {s_} {k} | the name of {s_} {k}
n! {s} renamed the {k} {n} | {s_} {k} is called {n} now
c? what colour is {s_} {k} | which colour does {s_} {k} have | what colour is {n}
k? what pet does {s} have | what animal is {n} | which animal does {s} have | what did {s} adopt
s? whose {k} is {n} | who does {n} belong to | who owns {n}

x:object f:object n:number2
> set the {x} to {n} | turn the {x} to {n} | the {x} should be at {n} | I set the {x} to {n} | leave the {x} on {n} | the {x} only works at {n} | put the {x} on {n} for the {f} | the {x} is set to {n} | keep the {x} at {n} | the {x} shows {n} | the {x} reads {n} | the {x} stopped at {n} | the {x} needs {n}
n? what do I set the {x} to | what is the {x} set to | at what should the {x} be | what does the {x} show | what does the {x} read | where did the {x} stop | what should the {x} be at
n! turn the {x} up to {n} | turn the {x} down to {n} | the {x} is at {n} now | set the {x} to {n} instead

strict s:anyone b:firstname y:year t:town o:company
> {s} met {b} in {y} in {t} | {s} [know] {b} from {t} | {s} studied with {b} in {t} | {s} lived in {t} until {y} | {s} moved here in {y} | {s} started the company in {y} | {s} worked with {b} at {o} | back in {y} {s} lived in {t} | in {y} {s} went to {t} to work for {o} | {s} retired in {y} | {s} left {t} in {y} | {s} bought the house in {y} | since {y} {s} [have] worked for {o} | {s} spent a year in {t} | {s} graduated from {o} in {y}
y? when did {s} meet {b} | until when did {s} live in {t} | in which year did {s} move here | when did {s} start the company | when did {s} retire | when did {s} leave {t} | when did {s} buy the house | since when [do] {s} work for {o} | when did {s} graduate
t? where did {s} meet {b} | where did {s} study | where did {s} live | where did {s} spend a year | where did {s} live in {y} | where did {s} go in {y}
b? who did {s} meet in {t} | who did {s} study with | who did {s} work with at {o}
o? where did {s} work with {b} | for whom [do] {s} work since {y} | what did {s} graduate from

d:dayish e:errand p:person q:person
> on {d} {p} will {e} and {q} has the day off | {p} has to {e} on {d} | {p} will {e} on {d} | on {d} it's {p_} turn to {e} | {d}: {p} has to {e} | {p} can {e} on {d} but not before | we agreed that {p} will {e} on {d} | {p} promised me to {e} on {d} | {p} is the one to {e} on {d} | please ask {p} to {e} on {d} | {p} and {q} will {e} on {d}
d? when will {p} {e} | when does {p} have to {e} | on which day will {p} {e} | when is {p} going to {e} | which day will {p} {e}
d! {p} will {e} on {d} instead | {p} can only {e} on {d}
p? who will {e} on {d} | who has to {e} on {d} | whose turn is it on {d} | who is going to {e}
p! {p} will {e} instead | {p} swapped and has to {e}
e? what will {p} do on {d} | what does {p} have to do on {d} | what happens on {d}

a:textplace d:direction b:place
> to get to {a}, go {d} at {b} | turn {d} at {b} to reach {a} | {a} is {d} of {b} | at {b} you go {d} | you have to turn {d} at {b} | take the {d} path at {b} | {a} is on the {d} side of {b} | go {d} when you see {b} | after {b}, keep {d}
d? which way do I go at {b} | where do I turn at {b} | which direction do I take at {b} | do I go left or right at {b} | on which side of {b} is {a} | how do I get to {a} | in which direction is {a}
d! you have to go {d} at {b} now | {d} at {b}, I was wrong

c:plainnoun s:state p:person
> the {c} is {s} | the {c} has been {s} by {p} | the {c} was {s} | {p} said the {c} was {s} | the status of the {c} is {s} | the {c}: {s} | right now the {c} is {s} | {p} marked the {c} as {s} | the {c} got {s} yesterday | consider the {c} {s}
s? what is the status of the {c} | what happened to the {c} | how is the {c} | what state is the {c} in | what's up with the {c} | what was the {c} marked as | how is the {c} doing
s~ the status of the {c}
s! the {c} is {s} now | {p} changed the status of the {c} to {s} | in the end the {c} was {s}
p? who marked the {c} | who said so about the {c}
"""
