"""Sentence frames and question forms, divided among training, validation and test by a hash."""

import re

from . import changes
from .predicates import PREDICATES
from .splits import FUNCTION_WORDS, SPLITS, divide, split_of

# {np} the attribute's noun phrase ("Anna's shoe size"), {v} its value, {noun} the bare noun, {an} with its article.
_ATTRIBUTE_STATEMENTS = """{NP} is {v}|{NP} is {v}|{NP} is {v}|{NP} was {v}|{NP} will be {v}|{NP}: {v}|{NP}: {v}|{NP} = {v}|{NP} - {v}|{NP} -> {v}
{NP} is now {v}|{NP} is still {v}|{NP} should be {v}|{NP} must be {v}|{NP} turned out to be {v}|{NP} has always been {v}|{NP} seems to be {v}
{NP} reads {v}|{NP} says {v}|{NP} equals {v}|{NP} stays {v}|{NP} became {v}|{NP} remains {v}|{NP} got set to {v}|{NP} goes by {v}|{NP} has been {v} since May
{V} is {np}|{V} was {np}|{V} is the answer for {np}|{V} ({np})|{V}: that is {np}|{V}, that's {np}|{V} will be {np}
for {np} use {v}|for {np} write down {v}|for {np} enter {v}|for {np} it says {v}|as for {np}, it is {v}|about {np}: it is {v}|about {np}, it's {v}
we set {np} to {v}|we agreed on {v} as {np}|we picked {v} as {np}|they gave {v} as {np}|they changed {np} to {v}|somebody wrote {v} for {np}
they told me {np} is {v}|she told me that {np} is {v}|he said {np} was {v}|I heard {np} is {v}|I think {np} is {v}|I believe {np} is {v}
I was told {np} would be {v}|it says here that {np} is {v}|it turns out {np} is {v}|it looks like {np} is {v}|you asked about {np}: {v}
use {v} as {np}|use {v} for {np}|take {v} as {np}|write {v} down as {np}|put {v} down for {np}|keep {v} as {np}|note {v} as {np}|save {v} as {np}
{np}? {v}|{np}? that's {v}|{np}? it's {v}|{np} ({v})|{NP}, as always, is {v}|{NP}, by the way, is {v}|{NP}, if you need it, is {v}|{NP}, for the record: {v}
{NP} happens to be {v}|{NP} is going to be {v}|{NP} used to be unknown, it is {v}|there is {an} too, and it is {v}: {np}|{NP}, {v}, is new
{NP} is exactly {v}|{NP} is probably {v}|{NP} is apparently {v}|{NP} is officially {v}|{NP} is called {v}|{NP} is listed as {v}|{NP} is given as {v}
{NP} is set to {v}|{NP} is fixed at {v}|{NP} is recorded as {v}|{NP} comes to {v}|{NP} amounts to {v}|{NP} stands at {v}|{NP} is {v} these days
{NP}, as far as I know, is {v}|{NP} has to be {v}|{NP} would be {v}|{NP} can only be {v}|{NP} ought to be {v}|{NP} might be {v}|{NP} proved to be {v}|{NP} ended up being {v}|{NP} is currently {v}|{NP} is supposed to be {v}
{NP}? It's {v}|{NP}? That would be {v}|{NP} is the following: {v}|{NP} is simply {v}|{NP} is nothing but {v}|{NP} is always {v}|{NP} was set at {v}|{NP} came out as {v}|{NP} came to {v}|{NP} shows {v}|{NP} got {v}|{NP} [{v}]
it is {v} that we use as {np}|it's {v} for {np}|it was {v} that they gave as {np}|what matters for {np} is {v}|when it comes to {np}, it's {v}|with regard to {np}: {v}|regarding {np}, it's {v}|concerning {np}, it is {v}
we have {v} as {np}|I have {v} as {np}|we chose {v} as {np}|we went with {v} for {np}|I'd put {v} for {np}|they want {v} as {np}|they list {v} as {np}|he gave me {v} as {np}|she noted {v} for {np}|the form says {v} for {np}
according to the list {np} is {v}|according to my notes, {np} is {v}|my notes say that {np} is {v}|the letter says {np} is {v}|on the sheet, {np} is {v}|I wrote down {v} for {np}|I have it here: {np} is {v}|let's say {np} is {v}|suppose {np} is {v}
you need {v} for {np}|type {v} for {np}|fill in {v} for {np}|remember {v} for {np}|remember {v} as {np}|don't forget {np}: {v}|don't forget that {np} is {v}|make a note: {np} is {v}|make a note that {np} is {v}|add {np}: {v}|record {np} as {v}
I know {np}, it's {v}|I found {np}: {v}|I looked up {np}, it is {v}|I just got {np}: {v}|here is {np}: {v}|here's {np}: {v}|this is {np}: {v}|that's {np}: {v}|I can tell you {np}: {v}|to answer your question, {np} is {v}
if anyone asks, {np} is {v}|in case you need {np}, it's {v}|in case you wonder, {np} is {v}|should you need {np}: {v}|whoever asks for {np} gets {v}|everybody knows that {np} is {v}|nobody knows that {np} is {v}|only we know that {np} is {v}
the thing about {np} is that it's {v}|the important part is {np}, {v}|{v} is what we call {np}|{v} is what they told me for {np}|{v}, that is {np}|{v} for {np}|{V} is listed as {np}|{V} stands for {np}|{V} counts as {np}|{V} serves as {np}"""
# {o} the owner, {noun} what it has.
_OWNER_STATEMENTS = """{O} has {an} of {v}|{O} has {v} as {noun}|{O} has the {noun} {v}|{O} got the {noun} {v}|{O}, {noun} {v}|{O} ({noun} {v})|{O}: {noun} {v}
{O} - {noun}: {v}|{O} uses {v} as {noun}|{O} comes with {an} of {v}|{O} lists {v} as {noun}|{O} gave {v} as {noun}|with {o}, the {noun} is {v}|at {o}, the {noun} is {v}
for {o} the {noun} is {v}|for {o}, use the {noun} {v}|in the case of {o} the {noun} is {v}|{O} needs {an} of {v}|{O} shows {an} of {v}|{O} keeps the {noun} at {v}
{O}: {v} ({noun})|{O} is known for its {noun}, {v}|{O} took {v} as {noun}|{O} picked {v} as {noun}|{O} registered {v} as {noun}
{O} got {an}: {v}|{O} gets {v} as {noun}|{O} is listed with the {noun} {v}|{O} is down with {v} as {noun}|{O} was given the {noun} {v}|{O} was assigned {v} as {noun}|{O} came with the {noun} {v}|{O} goes with the {noun} {v}
{O} told me the {noun}: {v}|{O} says the {noun} is {v}|{O} said {v} when I asked for the {noun}|{O} wants {v} as {noun}|{O} asked for {v} as {noun}|{O} chose {v} as {noun}|{O} entered {v} as {noun}|{O} set the {noun} to {v}|{O} has a new {noun}, {v}
{O} put {v} as {noun}|{O} wrote {v} under {noun}|{O} prefers {v} as {noun}|{O} decided on {v} as {noun}|{O} stands at {v} for {noun}|{O} keeps {v} as {noun}|{O}, whose {noun} is {v}, is fine|{O}, with the {noun} {v}, comes first|{O} with {noun} {v}
{O} does have {an}, it's {v}|{O}? The {noun} is {v}|{O} must have the {noun} {v}|{O} now has the {noun} {v}|{O} still has the {noun} {v}|the {noun} that {o} has is {v}|the {noun} {o} uses is {v}|the {noun} {o} got is {v}|the {noun} we gave {o} is {v}
what {o} has as {noun} is {v}|I gave {o} the {noun} {v}|we gave {o} {v} as {noun}|they assigned {o} the {noun} {v}|you reach the {noun} of {o} with {v}|among other things, {o} has the {noun} {v}"""
_ATTRIBUTE_QUESTIONS = """what is {np}|what is {np}|what is {np}|what's {np}|what was {np}|what is {np} again|what was {np} again|which {noun} was it: {np}|what did I say {np} is
what did I say {np} was|what did I tell you about {np}|what do you know about {np}|what should I use for {np}|what do I enter for {np}|what do I put for {np}
how about {np}|what about {np}|what would {np} be|what can you tell me about {np}|what do we have as {np}|what's written for {np}|what have I told you about {np}
what does it say for {np}|what {noun} do we need: {np}|what is listed as {np}|what value does {np} have|what have we set {np} to|what did they give as {np}
what's {np} again|what's {np} now|what is {np} now|what is {np} at the moment|what exactly is {np}|what did I give you as {np}|what did I write for {np}|what was {np} supposed to be|what do I have for {np}|what have I got as {np}|what's the answer for {np}
what do you have for {np}|what is the value of {np}|what was said about {np}|what did they say {np} is|what would you say is {np}|what should {np} be|what do I say if someone asks for {np}|what did we agree on for {np}|what has {np} been set to
which one is {np}|what do I need to know about {np}|what was that about {np}|so what is {np}|and what is {np}|what again was {np}|what, again, is {np}|could it be that you know {np}|what do we use as {np}|what is meant to be {np}"""
_OWNER_QUESTIONS = """which {noun} does {o} have|what {noun} does {o} have|what {noun} has {o}|what {noun} is it for {o}|which {noun} belongs to {o}|what does {o} have as {noun}
what {noun} did {o} get|which {noun} do I need for {o}|what is {o} given as {noun}|for {o}, what is the {noun}|what is the {noun} at {o}|{o} has what {noun}
what {noun} did {o} choose|what {noun} does {o} use|which {noun} did {o} get|which {noun} is {o}'s|which {noun} goes with {o}|what's the {noun} that {o} has|what does {o} use as {noun}|what did {o} give as {noun}|what {noun} was {o} given|what {noun} is listed for {o}|what is {o}'s {noun} now"""
_ATTRIBUTE_INDIRECT = """what {np} is|what {np} was|{np}|{np}|what I said about {np}|what I told you about {np}"""
_TYPED_QUESTIONS = {
    "person": "who is {np}|who's {np}|who was {np}|who did I say is {np}", "time": "when is {np}|at what time is {np}",
    "date": "when is {np}|on what date is {np}|when was {np}", "town": "where is {np}", "price": "how much is {np}|how high is {np}|how much was {np}",
    "weight": "how much is {np}", "length": "how much is {np}|how big is {np}", "duration": "how long is {np}", "number": "how much is {np}|how large is {np}",
    "spot": "where is {np}", "room": "where is {np}|which room is {np}", "address": "where is {np}", "temperature": "how high is {np}|how warm is {np}",
}  # fmt: skip
_ADVERBS = "always usually currently normally still really already never often sometimes actually apparently now probably officially generally"
# {t} a thing, {v} a place with its preposition, {p} a person.
_LOCATIONS = """{t} {be} {v}|{t} {be} {v}|{t} {be} {v}|I put {t} {v}|I left {t} {v}|I keep {t} {v}|I hid {t} {v}|I parked {t} {v}|I found {t} {v}|I stored {t} {v}|I saw {t} {v}
{p} put {t} {v}|{p} left {t} {v}|{p} keeps {t} {v}|{p} hid {t} {v}|{p} found {t} {v}|{p} has {t} {v}|{p} placed {t} {v}|we keep {t} {v}|we left {t} {v}
you will find {t} {v}|you can find {t} {v}|you'll find {t} {v}|look for {t} {v}|{t} belong{s} {v}|{t} stay{s} {v}|{t} lie{s} {v}|{t} stand{s} {v}|{t} hang{s} {v}
{t} {be} kept {v}|{t} {be} stored {v}|{t} {be} hidden {v}|{t} {be} somewhere {v}|{t} {be} now {v}|{t} {be} always {v}|{t} {be} still {v}|{t}: {v}|{v} {be} {t}
{t} can be found {v}|{t} should be {v}|{t} must be {v}|{t} ended up {v}|{t} got left {v}|my mother put {t} {v}|somebody left {t} {v}|they put {t} {v}
{t} {be} right {v}|{t} {be} lying {v}|{t} {be} sitting {v}|{t} {be} standing {v}|{t} {be} waiting {v}|{t} {be} back {v}|{t} {be} usually {v}|{t} {be} probably {v}|I dropped {t} {v}|I forgot {t} {v}|I lost {t} {v}|I've got {t} {v}|I stuck {t} {v}|I set {t} down {v}
I always keep {t} {v}|I usually leave {t} {v}|I have {t} {v}|I placed {t} {v}|I buried {t} {v}|I locked {t} up {v}|I tucked {t} away {v}|I've just put {t} {v}|I'll leave {t} {v} for you|I will put {t} {v}
{p} dropped {t} {v}|{p} forgot {t} {v}|{p} stored {t} {v}|{p} always puts {t} {v}|{p} saw {t} {v}|{p} said {t} {be} {v}|{p} told me {t} {be} {v}|{p} thinks {t} {be} {v}|{p} parked {t} {v}|{p} must have left {t} {v}|{p} will leave {t} {v}
{t} got put {v}|{t} got stuck {v}|{t} turned up {v}|{t} showed up {v}|{t} went {v}|{t}? {v}|{t} -> {v}|{t} = {v}|if you need {t}, look {v}|if anyone needs {t}: {v}|go and get {t}: {v}|fetch {t}: {v}
whoever looks for {t} finds it {v}|remember I put {t} {v}|remember that {t} {be} {v}|put {t} back {v}|please leave {t} {v}|please put {t} {v}|the place for {t} is {v}|we always leave {t} {v}|we hid {t} {v}|we found {t} {v}|we store {t} {v}|we put {t} {v} yesterday"""
# Changes of a place and of an appointment: {n} the new place without a preposition.
_MOVES = """we moved {t} to {n}|I moved {t} to {n}|{p} moved {t} to {n}|I brought {t} to {n}|{p} took {t} to {n}|{T} went to {n}|{T} is in {n} now|I put {t} in {n} now|{T} is now at {n}|we carried {t} into {n}
{T} was moved to {n}|{T} has been brought to {n}|they took {t} to {n}|{T} is no longer there, it is in {n}|I have put {t} in {n}|you will find {t} in {n} now|{p} brought {t} to {n}|{T} got moved to {n}
{T} got carried to {n}|{T} lives in {n} now|{T} is over at {n} now|{p} put {t} in {n}|{p} carried {t} over to {n}|we brought {t} over to {n}|I took {t} to {n} instead|{T} has moved to {n}|{T} has gone to {n}|{T} had to go to {n}|we need space, so {t} went to {n}|{T}? we moved it to {n}|{p} needed {t} in {n} and took it there|find {t} in {n} from now on|{T} stays in {n} from today"""
_SHIFTS = """{E} was moved to {n}|{E} is moved to {n}|{E} was postponed to {n}|{E} got rescheduled to {n}|{E} has been shifted to {n}|{E} is now {i}{n}|we moved {e} to {n}|{E} is {i}{n} now|{E} will be {i}{n} instead
they moved {e} to {n}|let's have {e} {i}{n} instead|{E} takes place {i}{n} now|{E} is {i}{n}, not {i}{o}|{E} was pushed back to {n}|{E} has been moved from {o} to {n}|new date for {e}: {n}|{E} is not {i}{o} but {i}{n}
{E} was brought forward to {n}|{E} changes to {n}|{E} starts {i}{n} now|we had to move {e} to {n}|{E} moves from {o} to {n}|{E}: {n} instead of {o}|correction, {e} is {i}{n}|sorry, {e} is {i}{n}
{E} slipped to {n}|{E} was put off until {n}|{E} had to be moved to {n}|{E} got pushed to {n}|{E} got postponed until {n}|{E} will only be {i}{n}|the new date of {e} is {n}|they pushed {e} to {n}|we pushed {e} to {n}|{E} is now set for {n}|{E} has been rescheduled for {n}|somebody moved {e} to {n}
{E} was shifted from {o} to {n}|no {e} {i}{o}, it is {i}{n}|turns out {e} is {i}{n}|actually {e} is {i}{n}|we agreed to have {e} {i}{n}|{E} starts {i}{n} instead of {o}|forget {o}, {e} is {i}{n}|I was wrong, {e} is {i}{n}|{e} happens {i}{n} instead"""
_LOCATION_QUESTIONS = """where {be} {t}|where {be} {t}|where {be} {t}|where can I find {t}|where did I put {t}|where did I leave {t}|where do I find {t}|where do I keep {t}
where do I look for {t}|where {do} {t} belong|where did {t} go|where should I look for {t}|in what place {be} {t}|where did I say {t} {be}|where has {t} been put
what is the location of {t}|where {be} {t} kept|where {be} {t} now|where might {t} be|where would I find {t}"""
_LOCATION_INDIRECT = "where {t} {be}|where {t} {be}|where to find {t}|where I put {t}|where I left {t}|where {t} {be} kept|where I can find {t}"
_APPOINTMENT_VERBS = """is|is|is|is|will be|takes place|happens|starts|begins|is scheduled|is planned|is set|is booked|will take place|will start|is happening|was fixed
is going to be|is supposed to be|should be|has been arranged|got scheduled|will happen
|is now|is still|has been fixed|was arranged|is due|runs|will begin|kicks off|is going to happen|is on the calendar|has been scheduled|was announced"""
_APPOINTMENT_QUESTIONS = {
    "day": "what day is {e}|which day is {e}|on what day is {e}|on which day is {e}|which day does {e} take place|what date is {e}|on what date is {e}",
    "time": "what time is {e}|at what time is {e}|what time does {e} start|when does {e} start|at what time does {e} begin|when does {e} begin|what time is {e} at",
    "place": "where is {e}|where does {e} take place|where will {e} be|where do I have to go for {e}|in which place is {e}|where is {e} held|which room is {e} in",
    "person": "who is {e} with|with whom is {e}|who will be at {e}|who am I meeting at {e}",
}  # fmt: skip
_APPOINTMENT_INDIRECT = {
    "day": "what day {e} is|which day {e} is on|on what day {e} is", "time": "what time {e} is|what time {e} starts|at what time {e} is",
    "place": "where {e} is|where {e} takes place|where {e} will be", "person": "who {e} is with",
}  # fmt: skip
_APPOINTMENT_WORDS = {
    "day": "day|date",
    "time": "time|start",
    "place": "place|room|venue|location",
    "person": "person|partner",
}
_WHEN_QUESTIONS = (
    "when is {e}|when will {e} be|when does {e} take place|when do we have {e}|when is {e} again|when do I have {e}"
)
_RELATION_STATEMENTS = """{np} is {v}|{np} is {v}|{v} is {np}|{v} is {np}|{np} is called {v}|{np} is named {v}|{np}'s name is {v}|the name of {np} is {v}|{np}: {v}|{np} = {v}
they call {np} {v}|I call {np} {v}|{v} works as {np}|{v} has been {np} for years|{v} became {np}|we have {v} as {np}|{np} will be {v}|you can call {np} {v}|{np} was {v}
{v}, {np}, is very kind|{v}, who is {np}, said hello|{np} goes by {v}|I met {v}, {np}|this is {v}, {np}|{np} has the name {v}|{np}, {v}, is on holiday
{np}, {v}, came by|{np} happens to be {v}|{np} answers to {v}|{np} introduced herself as {v}|{np} likes to be called {v}|I have {np}, {v}|meet {np}, {v}|my notes say {np} is {v}|that's {v}, {np}|{v} has always been {np}|{v} is going to be {np}|{v}, as you know, is {np}
{v} turned out to be {np}|{np} is someone called {v}|{np} is a certain {v}|{np} - {v}|{np} ({v})|it's {v} who is {np}|everyone calls {np} {v}|{v} used to be a stranger, now {np}|{np} will always be {v}|{np} must be {v}|{v} acts as {np}|{v} serves as {np}"""
_RELATION_QUESTIONS = """who is {np}|who is {np}|who's {np}|who was {np}|what is {np} called|what's {np} called|what is the name of {np}|what is {np}'s name|what's {np}'s name
what did I say {np} is called|how is {np} called|what do I call {np}|what name does {np} have|which person is {np}"""
_RELATION_INDIRECT = "who {np} is|the name of {np}|what {np} is called|{np}'s name"
_NAMINGS = """{t} {be} called {v}|we call {t} {v}|I named {t} {v}|the name of {t} is {v}|{t} {be} named {v}|{v} is the name of {t}|they named {t} {v}|everybody calls {t} {v}
{t} got the name {v}|{t}: {v}|{t} goes by the name of {v}|I gave {t} the name {v}
{t} {be} known as {v}|{t} will be called {v}|the kids call {t} {v}|people call {t} {v}|I decided to call {t} {v}|{t} got named {v}|my name for {t} is {v}|we gave {t} the name {v}|{t} {be} also called {v}|{t} should be called {v}|{v} is what we call {t}|{v}, that's {t}|let's call {t} {v}|we baptised {t} {v}"""
_NAMING_QUESTIONS = "what {be} {t} called|what is the name of {t}|what do we call {t}|what name did {t} get|what did I name {t}|how {be} {t} called|what's {t} called"

_LEADS = """By the way, |FYI, |Note that |Remember: |Remember that |Just so you know, |btw |One more thing: |Also, |And |So |Well, |OK, |Oh, |Ah, |Please remember that |Please note: |Note: |Info:
For your information, |As I said, |In case you forget, |Don't forget: |To be clear, |Important: |Reminder: |Hey, |Listen, |Apparently, |In fact, |Actually |Also: |Then |Now |Yes, |Today I learned that
I want you to know that |You should know that |Let me tell you that |Here is something: |Guess what, |I forgot to say that |It may help that |Keep in mind that |For later: |New: |Fact: |Another thing: |ok so |
Believe it or not, |As you may know, |Last I checked, |If I'm not mistaken, |To my surprise, |According to the sign, |As it turns out, |Good news: |Bad news: |Sad but true: |Long story short, |Yesterday I heard that |I've just learned that |My neighbour told me that |When I called, they said that |For once, |After a long discussion, |Thanks to you, |Let's note that |Could you remember that |Can you keep in mind that |Just to let you know, |I wanted to tell you that |It's true that |No kidding, |Honestly, |Luckily, |Finally, |At last, |Sure, |Yeah, |Hi! |Hello, |Hi, |Good morning, |Ok, |So, |Anyway, |Plus, |Besides, |Oh and |Before I forget: |Before I forget, |Not sure if I said this, but |I should mention that |You might want to know that |One thing: |Small detail: |Quick note: |Memo: |Notice: |Heads up: |Heads-up, |Don't tell anyone, but |Between us, |Please remember: |Remember this: |Save this: |Keep this in mind: |Write this down: |"""
_TAILS = """, by the way|, I think|, I believe|, as far as I know|, if I remember right|, for now|, they say|, just so you know|, as usual|, you know| this year| at the moment|, at least| from now on
|, apparently|, ok|, right| as always| again| too| these days| this time|, for sure|, fyi|, btw| (important)
, if that helps|, which is fine with me|, so please don't forget|, so that's settled|, at least that's what they say|, which surprised me| because nobody else wanted it| and I'm happy about it|, I promise|, believe me|, in case you wonder|, just in case| (please remember)|, don't forget|, haha|, lol| :-)|, thanks|, please remember that|, as I said|, as agreed| as far as I can tell|, more or less|, of course|, if nothing changes|, unless something happens|, so they told me|, weather permitting|, at long last"""
_ASK_LEADS = """So, |Quick question: |Hey, |And |Now, |OK, |ok |One more: |Question: |Tell me, |Well, |Sorry, |By the way, |Also, |Hmm, |Just to check: |Remind me: |I forgot: |Let me ask: |Next: |please: |Again: |Help me: |uh |
Hi, |Actually, |Wait, |Thanks. |Thank you, |Great. |Cool, |Alright, |ok so |hey |Excuse me, |Another question: |Just wondering, |I was wondering, |Out of curiosity, |One last thing: |Could you check: |Please tell me: |do you know: |Oh, |"""
_ASK_TAILS = """, please| again| exactly| by the way|, do you remember|, do you know| please|, can you tell me| then| now|, again|, actually| ?| already|, if I may ask|, you think|, in short|, according to me
, thanks| for me|, can you remember|, please tell me| at the moment|, any idea| today|, do you still know|, I forgot|, I can't remember|, remind me|, sorry| anyway| these days|, quick"""
_INDIRECT = """do you know {i}|do you remember {i}|tell me {i}|tell me {i}|can you tell me {i}|could you tell me {i}|I forgot {i}|I want to know {i}|remind me {i}|please tell me {i}|any idea {i}|I need to know {i}
I don't remember {i}|I would like to know {i}|let me know {i}|did I mention {i}|did I tell you {i}|have I told you {i}|can you remind me {i}|I am not sure {i}|do you recall {i}|say {i}|give me {i}|look up {i}
find out {i}|show me {i}|I need {i}|please repeat {i}|what was it again, {i}|I'm looking for {i}|are you able to say {i}|you know {i}
please remind me {i}|do you happen to know {i}|can you remember {i}|would you tell me {i}|would you mind telling me {i}|just tell me {i}|I was wondering {i}|I wonder {i}|I can't recall {i}|I can't remember {i}|I keep forgetting {i}|help me remember {i}|tell me again {i}|check {i}|what I need to know is {i}|can you say {i}|could you repeat {i}|could you look up {i}|please say {i}|I have to know {i}|quick, {i}|have you noted {i}|did you note {i}"""
# Changes that repeat the statement: {s} the new one, {S} with a capital.
_RESTATED = """Correction: {s}|Actually, {s}|Sorry, {s}|Update: {s}|I was wrong: {s}|I made a mistake, {s}|Change of plan: {s}|New information: {s}|Wait, {s}|No, {s}|Let me correct that: {s}
{S} now|{S} now, not {old}|{S}, not {old}|{S} instead of {old}|{S} from now on|Not {old}: {s}|Forget what I said, {s}|It changed: {s}|I just learned that {s}|As of today, {s}|From tomorrow, {s}
No wait, {s}|Scratch that, {s}|Hold on, {s}|{S} after all|Turns out {s}|It turns out that {s}|I misspoke, {s}|My mistake, {s}|Things changed: {s}|{S}, no longer {old}|They changed it: {s}|I just heard that {s}|Oh, and {s} now
I got that wrong, {s}|On second thought, {s}|Small change: {s}|There has been a change: {s}|To correct myself, {s}|In fact {s}|{S}, actually|Plans changed, {s}|Never mind what I said, {s}|I have to correct myself: {s}|{S} again"""
_JOINS = "{a} and {b}|{a} and {b}|{a}, and {b}|{a}, but {b}|{a}; {b}|{a} while {b}|{a}, while {b}|{a}, {b}|{a}, also {b}|{a} - {b}|{a}, whereas {b}|{a}; and {b}|{a}, plus {b}|{a} / {b}|{a}, then {b}|{a} and also {b}|{a} (and {b})|{a}, and by the way {b}|{a}, and {b}, too"


def _parts(text: str, keep: bool = False) -> list[str]:
    parts = [part for line in text.splitlines() for part in line.split("|")]
    return [part if keep else part.strip() for part in parts if part.strip()]


def _divided(text: str, keep: bool = False) -> dict[str, list[str]]:
    """By split. Templates written several times are that much likelier where they belong."""
    parts = _parts(text, keep)
    divided = divide(parts, FUNCTION_WORDS)
    return {split: [part for part in parts if part in divided[split]] for split in SPLITS}


class Wording:
    """The frames of one split. Few forms that everybody uses ("what is {np}") belong to all of them."""

    def __init__(self, split: str):
        self.split = split

        def frames(text: str, keep: bool = False) -> list[str]:
            return _divided(text, keep)[split]

        def by_kind(forms: dict[str, str]) -> dict[str, list[str]]:
            return {kind: _parts(text) for kind, text in forms.items()}

        self.attribute_statements = frames(_ATTRIBUTE_STATEMENTS)
        self.owner_statements = frames(_OWNER_STATEMENTS)
        self.attribute_questions = frames(_ATTRIBUTE_QUESTIONS)
        self.owner_questions = frames(_OWNER_QUESTIONS)
        self.attribute_indirect = _parts(_ATTRIBUTE_INDIRECT)
        self.typed_questions = by_kind(_TYPED_QUESTIONS)
        self.adverbs = _ADVERBS.split()
        self.locations = frames(_LOCATIONS)
        self.moves = frames(_MOVES)
        self.shifts = frames(_SHIFTS)
        self.location_questions = frames(_LOCATION_QUESTIONS)
        self.location_indirect = _parts(_LOCATION_INDIRECT)
        self.appointment_verbs = frames(_APPOINTMENT_VERBS)
        self.appointment_questions = by_kind(_APPOINTMENT_QUESTIONS)
        self.appointment_indirect = by_kind(_APPOINTMENT_INDIRECT)
        self.appointment_words = by_kind(_APPOINTMENT_WORDS)
        self.when_questions = _parts(_WHEN_QUESTIONS)
        self.relation_statements = frames(_RELATION_STATEMENTS)
        self.relation_questions = frames(_RELATION_QUESTIONS)
        self.relation_indirect = _parts(_RELATION_INDIRECT)
        self.namings = frames(_NAMINGS)
        self.naming_questions = frames(_NAMING_QUESTIONS)
        self.leads = [lead.rstrip() + " " for lead in frames(_LEADS, keep=True)]  # a line's last one has no space
        self.tails = frames(_TAILS, keep=True)
        self.ask_leads = [lead.rstrip() + " " for lead in frames(_ASK_LEADS, keep=True)]
        self.ask_tails = frames(_ASK_TAILS, keep=True)
        self.indirect = frames(_INDIRECT)
        self.restated = frames(_RESTATED)
        self.elliptic = frames(changes.ELLIPTIC)
        self.changes = frames(changes.NAMED)
        self.changes_by_kind = {kind: frames(text) for kind, text in changes.KINDS.items()}
        self.verb_changes = {
            "present": frames(changes.PRESENT),
            "past": frames(changes.PAST),
            "future": frames(changes.FUTURE),
        }
        for tense, forms in tuple(self.verb_changes.items()):
            # A thing decides nothing, and "it's made of oak that it is" is not English.
            plain = [f for f in forms if not re.search(r"wanted|decided|started|plans|rather|told", f)]
            self.verb_changes[f"{tense} thing"] = plain
            self.verb_changes[f"{tense} be"] = [
                f for f in plain if not re.search(r"\{do\}|it's \{n\}|not \{b\}|it was", f)
            ]
        self.contrasts = frames(changes.CONTRASTS)
        self.before_named = frames(changes.BEFORE_NAMED)
        self.before = frames(changes.BEFORE)
        self.joins = frames(_JOINS)
        self.statements = [
            *(*self.attribute_statements, *self.owner_statements, *self.locations, *self.moves, *self.shifts),
            *(*self.relation_statements, *self.namings, *self.elliptic, *self.changes, *self.restated, *self.contrasts),
        ]
        self.predicates = [p for p in PREDICATES if split_of(f"predicate {p.name}") == split]


WORDINGS = {split: Wording(split) for split in SPLITS}
