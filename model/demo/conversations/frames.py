"""How things are said whatever the relation: frames for statements and questions, lead-ins, tails, small talk.

{e} is the entity, {n} a noun of the relation, {v} the value, {c} a whole clause, {p} a made-up person, {x} the old value.
splits.divide distributes every list among train, validation and test, so that training never uses a test frame."""

NOUN_STATEMENTS = """the {n} of {e} is {v}|the {n} for {e} is {v}|{es} {n} is {v}|{e} has {a} {n} of {v}|for {e}, the {n} is {v}
as for {e}, the {n} is {v}|when it comes to {e}, the {n} is {v}|regarding {e}, the {n} is {v}|with {e}, the {n} is {v}
at {e}, the {n} is {v}|the {n} at {e} is {v}|the {n} that belongs to {e} is {v}|the {n} listed for {e} is {v}
the {n} of {e} reads {v}|the {n} of {e} was set to {v}|they set the {n} of {e} to {v}|somebody set {es} {n} to {v}
the {n} given for {e} is {v}|{e} is listed with the {n} {v}|{e} is down with {a} {n} of {v}|{e} comes with the {n} {v}
{e} goes with the {n} {v}|{e} got the {n} {v}|{e} was given the {n} {v}|under {n}, {e} has {v}|{es} {n} happens to be {v}
{es} {n} turned out to be {v}|the {n} of {e} turned out to be {v}|{es} {n} will be {v}|the {n} of {e} will be {v}
the {n} we have for {e} is {v}|the {n} I have for {e} is {v}|the {n} I noted for {e} is {v}|I noted {es} {n} as {v}
I wrote down the {n} of {e} as {v}|I wrote down for {e} the {n} {v}|please note {es} {n}: {v}|please note for {e} the {n} {v}
note the {n} of {e}: {v}|write down that the {n} of {e} is {v}|keep in mind that {es} {n} is {v}|mark down {e} with the {n} {v}
{e}: {n} {v}|{e} - {n}: {v}|{e}, {n}: {v}|{n} of {e}: {v}|{n} for {e}: {v}|{es} {n}: {v}|{n} ({e}): {v}|{e} ({n}): {v}
{n} at {e} - {v}|{e} / {n} / {v}|on the list, {e} has the {n} {v}|in the file of {e}, the {n} is {v}|in my notes, {es} {n} is {v}
the records give {es} {n} as {v}|the records show for {e} the {n} {v}|the note about {e} gives the {n} as {v}
the page on {e} gives {a} {n} of {v}|the card of {e} shows the {n} {v}|according to the list, {es} {n} is {v}
if you ask about {e}, the {n} is {v}|if somebody wants the {n} of {e}, it is {v}|if you need {es} {n}, it is {v}
should you need the {n} of {e}, it is {v}|in case you need {es} {n}, that is {v}|whoever asks for the {n} of {e} should hear {v}
the {n} of {e}, that would be {v}|{es} {n}, that is {v}|the {n} of {e}? it is {v}|what is the {n} of {e}? it is {v}
{es} {n}? that would be {v}|you asked for the {n} of {e}, and it is {v}|there is {a} {n} for {e}, namely {v}|{e} uses the {n} {v}
{e} works with the {n} {v}|{e} now has the {n} {v}|now the {n} of {e} is {v}|today the {n} of {e} is {v}|{es} {n} stands at {v}
the {n} of {e} stands at {v}|the {n} of {e} comes to {v}|{es} {n} comes to {v}|the {n} of {e} was announced as {v}
they announced {es} {n}, which is {v}|they announced for {e} the {n} {v}|{e} announced {its} {n}: {v}|{e} chose {a} {n}, and it is {v}
{e} has the {n} {v}|{e} has {its} {n} at {v}|{e} put {its} {n} down as {v}|{e} gave {its} {n} as {v}|{e} told us that {its} {n} is {v}
I learned about {e} that {its} {n} is {v}|what I know about {e} is that the {n} is {v}|all I know of {e} is the {n}, {v}
one thing about {e}: the {n} is {v}|about {e}: the {n} is {v}|on {e}: {n} is {v}|{e} first: the {n} is {v}|next, {es} {n}: {v}
then there is {e} with the {n} {v}|then there is the {n} of {e}, {v}|there is {e}, whose {n} is {v}|I know {e}, whose {n} is {v}
we have {e} with {a} {n} of {v}|this is {e}, with the {n} {v}|look at {e}: {its} {n} is {v}|take {e}: the {n} there is {v}
consider {e}, whose {n} is {v}|I checked {e}, and the {n} is {v}|I asked at {e}, and the {n} is {v}|I looked up {e}: {n} {v}
I looked up the {n} of {e} and found {v}|I checked the {n} of {e} and it is {v}|we agreed that {es} {n} is {v}
we agreed on the {n} of {e}: {v}|we settled {es} {n} at {v}|the {n} of {e} is known to be {v}|everyone knows {es} {n} is {v}
{es} {n} equals {v}|for the {n} of {e} put {v}|for {e} and {its} {n}, put {v}|fill in for {e} under {n} {v}|as the {n} of {e} use {v}
as {n}, {e} has {v}|as {its} {n}, {e} has {v}|as {n} for {e} they gave {v}|as for the {n} of {e}, it is {v}
concerning the {n} of {e}, it is {v}|speaking of {es} {n}, it is {v}|talking about {e}, the {n} is {v}"""

NOUN_QUESTIONS = """what is the {n} of {e}|what is {es} {n}|what is the {n} for {e}|what's the {n} of {e}|what's {es} {n}
which {n} does {e} have|what {n} does {e} have|which {n} has {e}|can you tell me the {n} of {e}|can you tell me {es} {n}
could you tell me the {n} of {e}|could you give me {es} {n}|do you know the {n} of {e}|do you remember the {n} of {e}
do you recall {es} {n}|do you still have the {n} of {e}|do you still know {es} {n}|please tell me the {n} of {e}
please give me {es} {n}|tell me the {n} of {e}|tell me {es} {n}|give me the {n} of {e}|give me the {n} for {e}
remind me of the {n} of {e}|remind me of {es} {n}|remind me what the {n} of {e} is|remind me what {es} {n} is
I forgot the {n} of {e}|I forgot {es} {n}, what is it|I need the {n} of {e}|I need {es} {n}, please|I am looking for the {n} of {e}
I would like to know the {n} of {e}|I want to know {es} {n}|I wonder what the {n} of {e} is|I can't recall the {n} of {e}
I don't remember {es} {n}|help me with the {n} of {e}|what was the {n} of {e}|what was {es} {n} again|what was {es} {n}
what was the {n} for {e} again|which was the {n} of {e}|what did I say the {n} of {e} was|what did I tell you about the {n} of {e}
what did I give as the {n} of {e}|which {n} did I give for {e}|which {n} did I mention for {e}|which {n} goes with {e}
which {n} belongs to {e}|what {n} is listed for {e}|what {n} do you have for {e}|what do you have as the {n} of {e}
what have you noted as {es} {n}|what should I put as the {n} of {e}|what do I write as {es} {n}|someone asks for {es} {n}
someone wants to know the {n} of {e}|and the {n} of {e}|and {es} {n}|{n} of {e}|{n} for {e}|{es} {n}|{es} {n}, please
the {n} of {e}, please|the {n} of {e} is what|{es} {n} is what|{es} {n} was what again|as for {e}, what is the {n}
about {e}: what is the {n}|regarding {e}, what is {its} {n}|when it comes to {e}, what is the {n}|for {e}, what is the {n}
for {e}, which {n} did I give|with {e}, what was the {n}|at {e}, what is the {n}|and at {e}, what is the {n}
{e} - what is {its} {n}|{e}: {n}|{e}, {n}|let me have the {n} of {e}|let me know {es} {n}|say the {n} of {e}
repeat the {n} of {e}|repeat {es} {n} for me|could you repeat the {n} of {e}|look up the {n} of {e}|look up {es} {n}
check the {n} of {e} for me|have you got the {n} of {e}|have you noted {es} {n}|is there {a} {n} for {e}, and what is it
did I tell you the {n} of {e}|did I mention {es} {n}|did I ever say what the {n} of {e} is|any idea what the {n} of {e} is
any idea about {es} {n}|one question about {e}: what is the {n}|quick question: what is the {n} of {e}|quick check: {es} {n}
now, {es} {n}|so what is the {n} of {e}|so what was {es} {n}|then what is the {n} of {e}|tell me about {e}: what is {its} {n}
by the way, what is {es} {n}|what would be the {n} of {e}|what might {es} {n} be|what can you say about the {n} of {e}"""

# Put before a statement. {c} starts in lower case.
LEADS = """{p} told me that {c}|{p} says that {c}|{p} said {c}|{p} mentioned that {c}|I heard from {p} that {c}|I heard that {c}
I was told that {c}|I just learned that {c}|I read that {c}|as far as I know, {c}|as I understand it, {c}|I think {c}
I believe {c}|I am sure that {c}|I am told {c}|it seems that {c}|it turns out that {c}|apparently, {c}|by the way, {c}
oh, and {c}|also, {c}|and {c}|well, {c}|so, {c}|okay, {c}|right, {c}|listen, {c}|you know, {c}|for your information, {c}
just so you know, {c}|to let you know, {c}|please remember that {c}|please note that {c}|remember that {c}|note that {c}
remember: {c}|note: {c}|keep in mind that {c}|do not forget that {c}|let me tell you that {c}|I want you to know that {c}
I should mention that {c}|I should add that {c}|before I forget, {c}|one more thing: {c}|another thing: {c}|something else: {c}
here is something: {c}|first, {c}|second, {c}|next, {c}|then, {c}|finally, {c}|in addition, {c}|besides, {c}|moreover, {c}
in short, {c}|in fact, {c}|to be precise, {c}|to be clear, {c}|according to {p}, {c}|according to the notice, {c}
according to the newspaper, {c}|the notice says that {c}|the letter says that {c}|the sign says {c}|my notes say that {c}
it says here that {c}|it is written that {c}|everybody says that {c}|people say that {c}|they say {c}|we were told that {c}
we found out that {c}|I found out that {c}|I noticed that {c}|I can confirm that {c}|I can tell you that {c}|yesterday I learned that {c}
this morning {p} told me that {c}|last week I heard that {c}|for some reason {c}|luckily, {c}|sadly, {c}|interestingly, {c}
strangely, {c}|as you may know, {c}|if I remember correctly, {c}|if I am not mistaken, {c}|from what I hear, {c}|of course {c}
at the moment {c}|these days {c}|this year {c}|from now on {c}|it is certain that {c}|it was decided that {c}|rumour has it that {c}
a friend of {p} told me that {c}|{p} and {q} both say that {c}|when I met {p}, I learned that {c}|in the end {c}|news: {c}|fact: {c}
good to know: {c}|important: {c}|reminder: {c}|for the record, {c}|honestly, {c}|believe it or not, {c}|as {p} keeps saying, {c}"""

# Put after a statement.
TAILS = """just so you know|by the way|I think|I believe|as far as I know|if I remember correctly|if I am not mistaken|as {p} told me
as {p} says|according to {p}|in case you need it|in case somebody asks|please remember that|please note that|do not forget it
keep that in mind|I am quite sure|that much is certain|or so I heard|or so they say|at least for now|at the moment|these days
this year|from now on|as always|like every year|after all|of course|luckily|sadly|which is good to know|which surprised me
which surprised {p}|which nobody expected|and that is all|and nothing else|and that will stay so|and {p} agrees|you know
for your information|for the record|as everyone knows|as you may know|as the notice says|as it says in the letter|for some reason
to be precise|to be exact|I was told|I read somewhere|they say|people say|it seems|it turns out|that is what {p} said
that is what I heard|so I was told|which I wrote down|which I checked twice|without any doubt|until further notice|believe it or not"""

# A sentence that names the entity, after which a clause may say "it" or "she".
INTROS = """let me tell you about {e}|now about {e}|I want to tell you about {e}|I was thinking about {e}|there is some news about {e}
do you know {e}|you may know {e}|have you heard of {e}|I have something on {e}|here is what I know about {e}|a few words on {e}
remember {e}|{p} asked me about {e}|{p} talked about {e}|we talked about {e} today|yesterday we talked about {e}|I saw {e} yesterday
I was reminded of {e}|this is about {e}|let us talk about {e}|next comes {e}|then there is {e}|and then there is {e}
I promised to tell you about {e}|{p} is fond of {e}|everyone talks about {e}|nobody talks about {e}|I like {e}|we all like {e}
I have to think of {e}|something on {e}|{p} recommended {e}|I wrote a note on {e}|I have a note about {e}|I took notes on {e}
you should know about {e}|I know {e} well|{p} knows {e} well|speaking of {e}|concerning {e}|on the subject of {e}|as for {e}"""

# A change: {c} is the statement with the new value, {n}, {x} (old) and {v} (new) for those that name both.
UPDATES = """actually, {c} now|correction: {c}|I was wrong: {c}|I made a mistake: {c}|change of plan: {c}|things have changed: {c}
there was a change: {c}|update: {c}|an update on {e}: {c}|forget what I said about {e}: {c}|I have to correct myself: {c}
sorry, I was wrong about {e}: {c}|news from {e}: {c}|it changed: {c}|it was changed: {c}|since today {c}|starting now, {c}
the {n} of {e} has changed to {v}|{es} {n} has changed: it is now {v}|the {n} of {e} was changed to {v}
the {n} of {e} is no longer {x}; it is {v}|the {n} of {e} is not {x} any more but {v}|{es} {n} changed from {x} to {v}
they changed the {n} of {e} from {x} to {v}|they changed {es} {n} to {v}|instead of {x}, the {n} of {e} is now {v}
{es} {n} is not {x} after all, it is {v}|the new {n} of {e} is {v}|{e} has a new {n}: {v}|{e} got a new {n}, {v}
please change the {n} of {e} to {v}|please correct {es} {n} to {v}|please replace {es} {n} by {v}|the {n} of {e} is now {v}
I said the {n} of {e} was {x}, but it is {v}|it is not true that {es} {n} is {x}; it is {v}|as of now, the {n} of {e} is {v}
the {n} of {e} went from {x} to {v}|{es} {n} moved from {x} to {v}|from {x}, the {n} of {e} changed to {v}
the {n} of {e} used to be {x}, now it is {v}|{es} {n} was {x} before and is {v} now|the old {n} of {e} was {x}, the new one is {v}
the {n} of {e} is {v}, no longer {x}|the {n} of {e} is {v} now, not {x}|{e} has {v} as {n} now, not {x}
I told you {x} for the {n} of {e}, but the truth is {v}|I gave {x} as the {n} of {e}, and that was wrong: it is {v}
I said {es} {n} is {x}; make that {v}|you noted {x} as the {n} of {e}; please make it {v}|the {n} of {e} was {x} but has become {v}
{es} {n} became {v}|the {n} of {e} has become {v}|the {n} of {e} has been moved to {v}|{es} {n} has been set anew: {v}
the {n} of {e}, once {x}, is now {v}|the {n} of {e} had been {x}, but today it is {v}|rather than {x}, {e} has the {n} {v}
forget {x}: {es} {n} is {v}|{x} is out of date for {e}: the {n} is {v}|in place of {x}, {e} got the {n} {v}|a correction for {e}: {n} {v}
they now give {es} {n} as {v}|a change for {e}: the {n} is {v}|I have to change the {n} of {e} to {v}
the {n} of {e} is different now: {v}|{es} {n} is different from what I said: {v}|I mixed up the {n} of {e}: it is {v}
scratch that about {e}: the {n} is {v}|on second thought, {c}|I have just been told that now {c}|it has been decided anew: {c}"""

# Politeness and context around a question. {c} starts in lower case.
ASK_LEADS = """by the way, {c}|and {c}|now {c}|so {c}|okay, {c}|well, {c}|tell me, {c}|please tell me, {c}|hey, {c}|sorry, {c}
excuse me, {c}|quick question: {c}|one question: {c}|a question: {c}|one more question: {c}|here is a question: {c}|again, {c}
just to be sure, {c}|to be sure, {c}|I have to ask: {c}|let me ask you: {c}|I wonder, {c}|do you remember, {c}|remind me, {c}
I forgot, {c}|help me out, {c}|back to my list: {c}|{p} wants to know: {c}|{p} asks: {c}|{p} just asked me: {c}|next, {c}
before I go, {c}|while we are at it, {c}|out of curiosity, {c}|if you remember, {c}|now that I think of it, {c}|from memory, {c}"""
ASK_TAILS = """please|again|by the way|do you remember|do you know|can you tell me|could you tell me|if you remember|if you know
as far as you know|according to what I told you|from what I said|in your memory|any idea|{p} wants to know|I forgot|I need to know
just to be sure|tell me|now|then"""
# Before "when Tarvin Bakery opens", the question turned indirect.
INDIRECT = """can you tell me {c}|could you tell me {c}|do you know {c}|do you remember {c}|do you recall {c}|tell me {c}
please tell me {c}|remind me {c}|I forgot {c}|I would like to know {c}|I want to know {c}|I need to know {c}|I wonder {c}
I am not sure {c}|I can't remember {c}|let me know {c}|any idea {c}|did I tell you {c}|did I mention {c}|did I say {c}
would you tell me {c}|please remind me {c}|{p} asked me {c}|{p} wants to know {c}|have you noted {c}|can you say {c}"""

# Words without content, which random glue is made of.
GLUE = """the a of for at on in by to as with about from it its this that there here is was be will has so and but then now just
only still also well really please note say says said tell told list listed put set given known called write wrote down up
my our your their some any one thing all see look know think guess maybe mark keep note here over under after before""".split()

ACKNOWLEDGEMENTS = [
    "Noted.",
    "I will remember that.",
    "Understood, I have noted it.",
    "Thank you, I will keep that in mind.",
]
READ_REPLIES = ["I have read it.", "Thank you, I have read the text."]

# Small talk: what the user may say, what the assistant answers.
SMALL_TALK: list[tuple[str, list[str]]] = [
    ("Hello! Tell me things, and ask me about them later.",
     ["hello", "hi", "hi there", "hey", "good morning", "good evening", "good afternoon", "hello there", "greetings", "hey you",
      "good day", "hello, how do you do", "hi, nice to meet you", "hello assistant", "howdy", "hi again"]),
    ("You are welcome.",
     ["thanks", "thank you", "thank you very much", "many thanks", "thanks a lot", "great, thank you", "perfect, thanks",
      "that helps, thank you", "thanks for that", "thank you for your help", "good, thanks", "wonderful, thank you", "cheers"]),
    ("Goodbye! I will keep what you told me.",
     ["goodbye", "bye", "see you later", "bye bye", "good night", "that is all for today, goodbye", "until tomorrow", "see you",
      "I have to go now, bye", "farewell", "talk to you later", "so long"]),
    ("I am fine, thank you. What shall I remember?",
     ["how are you", "how are you today", "how is it going", "how do you feel", "are you well", "how do you do", "what's up",
      "how are things", "everything all right with you", "you all right"]),
    ("I am a small demo of DeepSeek Sparse Attention: I remember what you tell me in this conversation.",
     ["who are you", "what are you", "what can you do", "what is your name", "tell me about yourself", "are you a robot",
      "what do you do", "how do you work", "can you help me", "what are you for", "what should I do", "help", "explain yourself"]),
    ("I am glad to hear that.",
     ["good", "very good", "well done", "great", "you are good at this", "nice", "excellent", "that is right", "correct", "perfect",
      "exactly", "yes", "I like that", "wonderful", "okay", "ok", "fine"]),
]  # fmt: skip
CONFUSED = "I did not understand that. Tell me facts in plain English, and ask me about them."

# A second fact hung on a first clause {c}: about the same entity (pronoun clause {c2}, noun {n2}, value {v2}) ...
SAME_ENTITY = """{c}, and {c2}|{c}; {c2}|{c}, while {c2}|{c}, but {c2}|{c}. also, {c2}|{c}. besides, {c2}|{c}, and the {n2} is {v2}
{c}, and {its} {n2} is {v2}|{c}; {its} {n2} is {v2}|{c}, with the {n2} {v2}|{c}; the {n2} is {v2}|{c}, {n2} {v2}
{c}, and as for {its} {n2}, it is {v2}|{c}. the {n2} there is {v2}|{c}. as {n2}, {it} has {v2}|{c}, and {it} has {a2} {n2} of {v2}
{c}, and I noted {its} {n2} as {v2}|{c}, whereas the {n2} is {v2}|{c}; {n2}: {v2}|{c}, plus the {n2} {v2}"""
# ... or several nouns of one entity in a list ...
LISTS = """{e}: {n} {v}, {n2} {v2}|{e} - {n} {v}; {n2} {v2}|for {e} I have the {n} {v} and the {n2} {v2}|{e} has the {n} {v} and the {n2} {v2}
the {n} of {e} is {v} and the {n2} is {v2}|{es} {n} is {v}, {its} {n2} {v2}|with {e}, the {n} is {v} and the {n2} is {v2}
for {e}, note {n} {v} and {n2} {v2}|about {e}: {n} is {v}, {n2} is {v2}|{e}, {n} {v}, {n2} {v2}|as for {e}, {n} {v}, and {n2} {v2}
{e} ({n}: {v}, {n2}: {v2})|here is {e}: {n}, {v}; {n2}, {v2}|{e} comes with the {n} {v} and the {n2} {v2}|{e} -- {n} = {v}, {n2} = {v2}"""
# ... or one relation of two entities ({f}, {w}).
TWO_ENTITIES = """the {n} of {e} is {v} and that of {f} is {w}|the {n} of {e} is {v}, that of {f} {w}|{es} {n} is {v}, {fs} is {w}
the {n} of {e} is {v}, while {f} has {w}|for {e} the {n} is {v}, for {f} it is {w}|{n}: {e} {v}, {f} {w}|as {n}, {e} has {v} and {f} has {w}
while the {n} of {e} is {v}, the one of {f} is {w}|{e} has the {n} {v}, {f} the {n} {w}|with {e} the {n} is {v}, with {f} it is {w}
the {n} at {e} is {v}, at {f} {w}|{es} {n} is {v} and {fs} {w}|the {n} of {e}: {v}, of {f}: {w}|{e} has {v} as {n}, {f} has {w}
{e} and its {n} {v}, {f} with {w}|{es} {n} comes to {v}, {fs} to {w}|the {n} of {e} is {v}; for {f}, {w}|{n} for {e} is {v}, for {f} {w}
note as {n} of {e} {v} and of {f} {w}|both have {a} {n}: {e} {v}, {f} {w}|{e} got the {n} {v} and {f} got {w}|{es} {n} is {v}; {fs}, {w}
with {e}, {n} {v}; with {f}, {w}|{c}, and {c2}|{c}; {c2}|{c}, but {c2}|{c}, while {c2}"""
APPOSITIONS = """the one {l}|the {a} one|the one that {p} likes|the one I told you about|which {p} knows well|{l}|the {a} one {l}
as {p} calls it|the one everyone knows"""
