"""Sentence frames and question forms, divided among training, validation and test by a hash."""

from ..conversations.splits import FUNCTION_WORDS, SPLITS, divide, split_of
from .predicates import PREDICATES

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
{NP} is set to {v}|{NP} is fixed at {v}|{NP} is recorded as {v}|{NP} comes to {v}|{NP} amounts to {v}|{NP} stands at {v}|{NP} is {v} these days"""
# {o} the owner, {noun} what it has.
_OWNER_STATEMENTS = """{O} has {an} of {v}|{O} has {v} as {noun}|{O} has the {noun} {v}|{O} got the {noun} {v}|{O}, {noun} {v}|{O} ({noun} {v})|{O}: {noun} {v}
{O} - {noun}: {v}|{O} uses {v} as {noun}|{O} comes with {an} of {v}|{O} lists {v} as {noun}|{O} gave {v} as {noun}|with {o}, the {noun} is {v}|at {o}, the {noun} is {v}
for {o} the {noun} is {v}|for {o}, use the {noun} {v}|in the case of {o} the {noun} is {v}|{O} needs {an} of {v}|{O} shows {an} of {v}|{O} keeps the {noun} at {v}
{O}: {v} ({noun})|{O} is known for its {noun}, {v}|{O} took {v} as {noun}|{O} picked {v} as {noun}|{O} registered {v} as {noun}"""
_ATTRIBUTE_QUESTIONS = """what is {np}|what is {np}|what is {np}|what's {np}|what was {np}|what is {np} again|what was {np} again|which {noun} was it: {np}|what did I say {np} is
what did I say {np} was|what did I tell you about {np}|what do you know about {np}|what should I use for {np}|what do I enter for {np}|what do I put for {np}
how about {np}|what about {np}|what would {np} be|what can you tell me about {np}|what do we have as {np}|what's written for {np}|what have I told you about {np}
what does it say for {np}|what {noun} do we need: {np}|what is listed as {np}|what value does {np} have|what have we set {np} to|what did they give as {np}"""
_OWNER_QUESTIONS = """which {noun} does {o} have|what {noun} does {o} have|what {noun} has {o}|what {noun} is it for {o}|which {noun} belongs to {o}|what does {o} have as {noun}
what {noun} did {o} get|which {noun} do I need for {o}|what is {o} given as {noun}|for {o}, what is the {noun}|what is the {noun} at {o}|{o} has what {noun}"""
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
{t} can be found {v}|{t} should be {v}|{t} must be {v}|{t} ended up {v}|{t} got left {v}|my mother put {t} {v}|somebody left {t} {v}|they put {t} {v}"""
# Changes of a place and of an appointment: {n} the new place without a preposition.
_MOVES = """we moved {t} to {n}|I moved {t} to {n}|{p} moved {t} to {n}|I brought {t} to {n}|{p} took {t} to {n}|{T} went to {n}|{T} is in {n} now|I put {t} in {n} now|{T} is now at {n}|we carried {t} into {n}
{T} was moved to {n}|{T} has been brought to {n}|they took {t} to {n}|{T} is no longer there, it is in {n}|I have put {t} in {n}|you will find {t} in {n} now|{p} brought {t} to {n}|{T} got moved to {n}"""
_SHIFTS = """{E} was moved to {n}|{E} is moved to {n}|{E} was postponed to {n}|{E} got rescheduled to {n}|{E} has been shifted to {n}|{E} is now {i}{n}|we moved {e} to {n}|{E} is {i}{n} now|{E} will be {i}{n} instead
they moved {e} to {n}|let's have {e} {i}{n} instead|{E} takes place {i}{n} now|{E} is {i}{n}, not {i}{o}|{E} was pushed back to {n}|{E} has been moved from {o} to {n}|new date for {e}: {n}|{E} is not {i}{o} but {i}{n}
{E} was brought forward to {n}|{E} changes to {n}|{E} starts {i}{n} now|we had to move {e} to {n}|{E} moves from {o} to {n}|{E}: {n} instead of {o}|correction, {e} is {i}{n}|sorry, {e} is {i}{n}"""
_LOCATION_QUESTIONS = """where {be} {t}|where {be} {t}|where {be} {t}|where can I find {t}|where did I put {t}|where did I leave {t}|where do I find {t}|where do I keep {t}
where do I look for {t}|where {do} {t} belong|where did {t} go|where should I look for {t}|in what place {be} {t}|where did I say {t} {be}|where has {t} been put
what is the location of {t}|where {be} {t} kept|where {be} {t} now|where might {t} be|where would I find {t}"""
_LOCATION_INDIRECT = "where {t} {be}|where {t} {be}|where to find {t}|where I put {t}|where I left {t}|where {t} {be} kept|where I can find {t}"
_APPOINTMENT_VERBS = """is|is|is|is|will be|takes place|happens|starts|begins|is scheduled|is planned|is set|is booked|will take place|will start|is happening|was fixed
is going to be|is supposed to be|should be|has been arranged|got scheduled|will happen"""
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
{v}, {np}, is very kind|{v}, who is {np}, said hello|{np} goes by {v}|I met {v}, {np}|this is {v}, {np}|{np} has the name {v}|{np}, {v}, is on holiday"""
_RELATION_QUESTIONS = """who is {np}|who is {np}|who's {np}|who was {np}|what is {np} called|what's {np} called|what is the name of {np}|what is {np}'s name|what's {np}'s name
what did I say {np} is called|how is {np} called|what do I call {np}|what name does {np} have|which person is {np}"""
_RELATION_INDIRECT = "who {np} is|the name of {np}|what {np} is called|{np}'s name"
_NAMINGS = """{t} {be} called {v}|we call {t} {v}|I named {t} {v}|the name of {t} is {v}|{t} {be} named {v}|{v} is the name of {t}|they named {t} {v}|everybody calls {t} {v}
{t} got the name {v}|{t}: {v}|{t} goes by the name of {v}|I gave {t} the name {v}"""
_NAMING_QUESTIONS = "what {be} {t} called|what is the name of {t}|what do we call {t}|what name did {t} get|what did I name {t}|how {be} {t} called|what's {t} called"

_LEADS = """By the way, |FYI, |Note that |Remember: |Remember that |Just so you know, |btw |One more thing: |Also, |And |So |Well, |OK, |Oh, |Ah, |Please remember that |Please note: |Note: |Info:
For your information, |As I said, |In case you forget, |Don't forget: |To be clear, |Important: |Reminder: |Hey, |Listen, |Apparently, |In fact, |Actually |Also: |Then |Now |Yes, |Today I learned that
I want you to know that |You should know that |Let me tell you that |Here is something: |Guess what, |I forgot to say that |It may help that |Keep in mind that |For later: |New: |Fact: |Another thing: |ok so """
_TAILS = """, by the way|, I think|, I believe|, as far as I know|, if I remember right|, for now|, they say|, just so you know|, as usual|, you know| this year| at the moment|, at least| from now on
|, apparently|, ok|, right| as always| again| too| these days| this time|, for sure|, fyi|, btw| (important)"""
_ASK_LEADS = """So, |Quick question: |Hey, |And |Now, |OK, |ok |One more: |Question: |Tell me, |Well, |Sorry, |By the way, |Also, |Hmm, |Just to check: |Remind me: |I forgot: |Let me ask: |Next: |please: |Again: |Help me: |uh """
_ASK_TAILS = """, please| again| exactly| by the way|, do you remember|, do you know| please|, can you tell me| then| now|, again|, actually| ?| already|, if I may ask|, you think|, in short|, according to me"""
_INDIRECT = """do you know {i}|do you remember {i}|tell me {i}|tell me {i}|can you tell me {i}|could you tell me {i}|I forgot {i}|I want to know {i}|remind me {i}|please tell me {i}|any idea {i}|I need to know {i}
I don't remember {i}|I would like to know {i}|let me know {i}|did I mention {i}|did I tell you {i}|have I told you {i}|can you remind me {i}|I am not sure {i}|do you recall {i}|say {i}|give me {i}|look up {i}
find out {i}|show me {i}|I need {i}|please repeat {i}|what was it again, {i}|I'm looking for {i}|are you able to say {i}|you know {i}"""
# Changes. {old} and {new} values, {np} what changed, {s} the new statement, {S} with a capital.
_CHANGES = """Correction: {s}|Actually, {s}|Sorry, {s}|Update: {s}|I was wrong: {s}|I made a mistake, {s}|Change of plan: {s}|New information: {s}|Wait, {s}|No, {s}|Let me correct that: {s}
{S} now|{S} now, not {old}|{S}, not {old}|{S} instead of {old}|{S} from now on|Not {old}: {s}|Forget what I said, {s}|It changed: {s}|I just learned that {s}|As of today, {s}|From tomorrow, {s}
{NP} is {new} now|{NP} is now {new}|{NP} changed to {new}|{NP} changed from {old} to {new}|{NP} was changed to {new}|{NP} went from {old} to {new}|{NP} is no longer {old}, it is {new}
{NP} is no longer {old} but {new}|{NP} is not {old} but {new}|{NP} isn't {old} anymore, it's {new}|{NP} is {new} instead of {old}|{NP} has become {new}|{NP} has changed: {new}|{NP} moved to {new}
they changed {np} to {new}|we changed {np} from {old} to {new}|I changed {np} to {new}|we moved {np} to {new}|make {np} {new}|change {np} to {new}|please update {np} to {new}|set {np} to {new} now
{NP}: {new} (was {old})|{NP}: not {old}, {new}|{NP}: {new}, no longer {old}|{NP} used to be {old}, now it is {new}|{NP} was {old} and is {new} now|{NP} turns out to be {new}, not {old}
I said {np} is {old}, but it is {new}|I told you {np} was {old}; it is {new}|scratch {old}, {np} is {new}|instead of {old}, {np} is {new}|replace {old} with {new} for {np}|{NP} got moved from {old} to {new}
{NP} was postponed to {new}|{NP} is different now: {new}|the new value of {np} is {new}|{new} is {np} now|{new} is the new {np}|{new}, not {old}, is {np}|it's {new} now for {np}"""
_JOINS = "{a} and {b}|{a} and {b}|{a}, and {b}|{a}, but {b}|{a}; {b}|{a} while {b}|{a}, while {b}|{a}, {b}|{a}, also {b}|{a} - {b}|{a}, whereas {b}"


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
        self.leads = frames(_LEADS, keep=True)
        self.tails = frames(_TAILS, keep=True)
        self.ask_leads = frames(_ASK_LEADS, keep=True)
        self.ask_tails = frames(_ASK_TAILS, keep=True)
        self.indirect = frames(_INDIRECT)
        self.changes = frames(_CHANGES)
        self.joins = frames(_JOINS)
        self.predicates = [p for p in PREDICATES if split_of(f"predicate {p.name}") == split]


WORDINGS = {split: Wording(split) for split in SPLITS}
