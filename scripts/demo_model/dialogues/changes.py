"""How people say that something has changed, and how they ask for what it was before.

{new} and {old} are values; {np} a noun phrase for what changes, {renewed} the same with "new" in it ("the new rent"); {s} the
subject of a verb, {v} the verb in the tense of the first statement, {b} its base form, {n} and {o} what follows it: new and old.
"""

import re

# After the statement itself: only the value is named.
ELLIPTIC = """No wait, {new}|No, {new}|Wait, {new}|Wait, no, {new}|Actually, {new}|Actually make that {new}|Make that {new}|Make it {new}|Sorry, {new}|Sorry, I meant {new}|I meant {new}|I mean {new}|Oops, {new}
Correction: {new}|Correction, {new}|Scratch that, {new}|Scratch that, it's {new}|Scratch that, make it {new}|Hang on, it's {new}|Hold on, {new}|Hmm, no, {new}|It's {new} now|It's {new}, not {old}|{new}, not {old}|Not {old}, {new}
Not {old} but {new}|Not {old} - {new}|It has been changed to {new}|It was changed to {new}|That changed to {new}|That changed, it's {new} now|That is {new} now|Turns out it's {new}|It turns out to be {new}|I misspoke, it's {new}
I got that wrong, it's {new}|I was wrong, it's {new}|My mistake, {new}|My bad, {new}|Typo, {new}|Typo: {new}|Ah no, {new}|Oh no, it's {new}|Update: {new}|Update: it's {new}|Change of plan: {new}|New plan: {new}|Change that to {new}
Please change that to {new}|Change it to {new}|Let's make it {new}|Let's say {new}|Better {new}|Rather {new}|Better make it {new}|I'd rather say {new}|I just heard it's {new}|They changed it to {new}|They just changed it to {new}
I just checked, it's {new}|I looked again: {new}|Forget that, {new}|Forget that, it's {new}|Ignore that, it's {new}|Strike that, {new}|Undo that, it's {new}|Replace {old} with {new}|{old} is wrong, it's {new}|{old} was wrong: {new}
It isn't {old}, it's {new}|That should be {new}|That should have been {new}|It should say {new}|It must be {new}|No, not {old}: {new}|nope, {new}|nvm, {new}|edit: {new}|erm, {new}|{new} instead|{new} instead of {old}|{new}, sorry
{new}, I mean|{new} I mean|{new}, actually|It's actually {new}|It is now {new}|It will be {new} instead|It's going to be {new} after all|{new} after all|On second thought, {new}|Not {old} anymore, it's {new}|No longer {old}, now {new}
Since today it's {new}|As of now it's {new}|From now on it's {new}|From tomorrow it's {new}|Instead of {old} it's {new}|Let me correct that: {new}|Let me rephrase: {new}|To correct myself: {new}|I have to correct myself, it's {new}"""
# Any value with a noun phrase.
NAMED = """{np} is {new} now|{np} is now {new}|{np} changed to {new}|{np} changed from {old} to {new}|{np} was changed to {new}|{np} went from {old} to {new}|{np} is no longer {old}, it is {new}|{np} has been changed, it's {new}
{np} is no longer {old} but {new}|{np} is not {old} but {new}|{np} isn't {old} anymore, it's {new}|{np} is {new} instead of {old}|{np} has become {new}|{np} has changed: {new}|{np} isn't {old}, it's {new}|{np} is {new}, not {old}
they changed {np} to {new}|we changed {np} from {old} to {new}|I changed {np} to {new}|make {np} {new}|change {np} to {new}|please update {np} to {new}|set {np} to {new} now|somebody changed {np} to {new}|I updated {np}: {new}
{np}: {new} (was {old})|{np}: not {old}, {new}|{np}: {new}, no longer {old}|{np} used to be {old}, now it is {new}|{np} was {old} and is {new} now|{np} turns out to be {new}, not {old}|{np}: {old} -> {new}|{np}: {new} from now on
I said {np} is {old}, but it is {new}|I told you {np} was {old}; it is {new}|scratch {old}, {np} is {new}|instead of {old}, {np} is {new}|replace {old} with {new} for {np}|I was wrong about {np}, it's {new}|I was wrong about {np}: {new}
{np} is different now: {new}|the new value of {np} is {new}|{new} is {np} now|{new}, not {old}, is {np}|it's {new} now for {np}|I got {np} wrong, it's {new}|sorry, {np} is {new}|actually, {np} is {new}|no, {np} is {new}
{renewed} is {new}|{renewed} is {new}|{renewed}: {new}|{new} is {renewed}|we have {renewed}: {new}|{renewed} will be {new}|there is a change, {renewed} is {new}|{renewed} is {new}, forget {old}|{renewed} is {new} and no longer {old}
about {np}: it's {new} now|as for {np}, it's {new} now|{np} has changed, it's {new} now|{np} has just been changed to {new}|from now on {np} is {new}|as of today {np} is {new}|since yesterday {np} is {new}|{np} will be {new} instead
{np} should be {new}, not {old}|you can forget {old}, {np} is {new}|they told me that {np} is {new} now|it turns out {np} is {new}|I just found out that {np} is {new}|I checked again and {np} is {new}|{np} got changed to {new} this morning
{np} is {new} after all|don't use {old} anymore, {np} is {new}|{old} is out of date, {np} is {new}|{np} isn't what I said, it's {new}|we decided that {np} is {new}|turns out I had {np} wrong, it's {new}|{np} is {new} since last week"""
# By the kind of value.
_NUMBER = """{np} rose to {new}|{np} fell to {new}|{np} grew to {new}|{np} is up to {new}|{np} is down to {new}|{np} went up to {new}|{np} went down to {new}|{np} increased to {new}|{np} was raised to {new}|{np} was lowered to {new}|{np} dropped to {new}
{np} climbed from {old} to {new}|{np} shrank to {new}|they raised {np} to {new}|they lowered {np} to {new}|we cut {np} to {new}|{np} has been reduced to {new}|{np} has gone up to {new}|{np} was doubled and is {new} now|{np} jumped to {new}"""
_WHEN = """{np} was moved to {new}|{np} was postponed to {new}|{np} was pushed back to {new}|{np} was pushed to {new}|it's been pushed to {new}, {np} I mean|{np} got rescheduled to {new}|{np} was brought forward to {new}|{np} was put off until {new}
{np} slipped to {new}|they moved {np} from {old} to {new}|we had to move {np} to {new}|{np} was delayed until {new}|{np} shifted to {new}|{np} was moved up to {new}|{np} has been extended to {new}|we agreed to move {np} to {new}"""
_SECRET = """{np} was reset to {new}|I reset {np} to {new}|we had to reset {np}, it's {new}|IT changed {np} to {new}|{np} got replaced by {new}|{np} expired, use {new}|use {new} as {np} now|{np} no longer works, try {new}|they gave us {renewed}: {new}"""
_PERSON = """{new} took over as {np}|{new} replaced {old} as {np}|{old} left and {new} is {np} now|{old} was replaced by {new} as {np}|{new} is {np} instead of {old}|{old} quit, so {np} is {new} now|{new} became {np}|{np} isn't {old} anymore but {new}
{new} stepped in as {np}|{new} has taken over from {old} as {np}|{old} handed over to {new} as {np}|{old} is ill, {np} is {new} now|they made {new} {np}|we have {renewed}, {new}|{old} passed the job of {np} to {new}"""
_PLACE = """{np} was moved to {new}|{np} moved to {new}|{np} moved from {old} to {new}|{np} is at {new} now|{np} was relocated to {new}|they moved {np} to {new}|{np} has moved, it's {new} now|{np} switched to {new}"""
_NAME = """{np} was renamed to {new}|they renamed {np} to {new}|{np} is called {new} now|{np} goes by {new} now|we renamed {np}: {new}|{np} got a new name, {new}"""
KINDS = dict.fromkeys(
    "price number count weight length duration temperature percent quantity age dose".split(), _NUMBER
)
KINDS |= dict.fromkeys("time date day dayish ordinalday month year monthyear schedule weekdays daytime".split(), _WHEN)
KINDS |= dict.fromkeys("code password combo phone mail url ip version".split(), _SECRET)
KINDS |= dict.fromkeys("person firstname".split(), _PERSON)
KINDS |= dict.fromkeys("town place room address org street floor seat gate".split(), _PLACE)
KINDS |= dict.fromkeys("word name".split(), _NAME)
# With the verb of the first statement.
PRESENT = """{s} {v} {n} now|{s} now {v} {n}|{s} {v} {n}, not {o}|{s} no longer {v} {o} but {n}|{s} used to {b} {o} but now {v} {n}|instead of {o}, {s} {v} {n}|from now on {s} {v} {n}|{s} {v} {n} these days|since last week {s} {v} {n}
{s} {v} {n} instead|{s} will {b} {n} instead|it's {n} that {s} {v} now|I was wrong, {s} {v} {n}|it turns out that {s} {v} {n}|{s} {do} not {b} {o} anymore but {n}|{s} used to {b} {o}; now it's {n}|{s} decided to {b} {n}|not {o}: {s} {v} {n}
{s} started to {b} {n}|now it's {n} that {s} {v}|forget {o}, {s} {v} {n}|I thought {s} {v} {o}, but it's {n}|as of today {s} {v} {n}|{s} {v} {n} after all|{s} {v} {n} and not {o}|{s} {v} {n} and no longer {o}|{s} has changed, now it's {n}
{s} wanted to {b} {n} instead of {o}|actually {s} {v} {n}|{s} {do} not {b} {o}, it's {n}|sorry, {s} {v} {n}|scratch that, {s} {v} {n}|no, {s} {v} {n}|I just heard that {s} {v} {n}|correction: {s} {v} {n}, not {o}|{s} will {b} {n} from now on"""
PAST = """{s} {v} {n}, not {o}|actually {s} {v} {n}|it was not {o}: {s} {v} {n}|{s} did not {b} {o} but {n}|I was wrong, {s} {v} {n}|it turns out that {s} {v} {n}|sorry, {s} {v} {n}|no, {s} {v} {n}|{s} {v} {n} and not {o}|I remember now, {s} {v} {n}
I got it wrong: {s} {v} {n}|in fact {s} {v} {n}|correction: {s} {v} {n}|I thought {s} {v} {o}, but it was {n}|{s} {v} {n}, I mixed that up|{s} told me it was {n}, not {o}"""
FUTURE = """{s} {v} {n} instead|{s} {v} {n}, not {o}|{s} will not {b} {o} but {n}|{s} changed plans and {v} {n}|change of plans, {s} {v} {n}|{s} decided to {b} {n} instead|{s} was going to {b} {o}, but now it's {n}|{s} wanted to {b} {o} but {v} {n} now
{s} {v} {n} after all|actually {s} {v} {n}|{s} would rather {b} {n}|{s} is going to {b} {n} instead of {o}|{s} {v} {n} instead of {o}|no, {s} {v} {n}|new plan: {s} {v} {n}"""
# A fact that comes with what it is not, for {f}, another value.
CONTRASTS = """{s}, not {f}|{s}, not {f}|{s} and not {f}|{s}, and not {f} as I thought|{s}, although I thought it was {f}|{s}, it used to be {f}|{s} instead of {f}|{s}, no longer {f}|{s}, not {f} as it says online|{s} (not {f})|{s} rather than {f}
I thought it was {f}, but {s}|not {f}: {s}|it's not {f}, {s}|they said {f}, but {s}|it used to be {f}, now {s}|first it was {f}, but now {s}|somebody wrote {f}, but {s}|{s} - not {f}!|everybody says {f} but {s}|{s}, don't confuse it with {f}"""
# What it was before, for a noun phrase and for a question in the past tense.
BEFORE_NAMED = """what was {np} before|what was {np} originally|what was {np} at first|what did {np} use to be|what was {np} before that|what was {np} before the change|what was {np} earlier|what was {np} before it changed|{np} before|what had I said first about {np}
what did I first say {np} was|what was {np} in the beginning|what was {np} until now|what did {np} change from|what is the old value of {np}|what was {np} previously|what was {np} to begin with"""
BEFORE = """{q} before|{q} originally|{q} at first|{q} before that|{q} in the beginning|{q} earlier|{q} previously|{q} before the change|originally, {q}|before, {q}|before the change, {q}"""
_AUXILIARIES = {"is": "was", "are": "were", "do": "did", "does": "did", "am": "was", "what's": "what was", "where's": "where was", "who's": "who was", "can": "could", "has": "had", "have": "had"}  # fmt: skip
_AUXILIARY = re.compile(rf"\b({'|'.join(_AUXILIARIES)})\b")


def in_the_past(question: str) -> str | None:
    """ "where does Anna live" as "where did Anna live"; None if it has no auxiliary verb that would change."""
    head = " ".join(question.split(" ", 4)[:4])
    match = _AUXILIARY.search(head)
    if not match or match[1] in ("has", "have"):
        return question if re.search(r"\b(did|was|were)\b", head) else None
    return question[: match.start()] + _AUXILIARIES[match[1]] + question[match.end() :]


def renewed(phrase: str) -> str | None:
    """ "the rent" as "the new rent", "Anna's job" as "Anna's new job"."""
    for start in ("the ", "my ", "our "):
        if phrase.startswith(start):
            return f"{start}new {phrase[len(start) :]}"
    owner, mark, noun = phrase.partition("'s ")
    return f"{owner}'s new {noun}" if mark else None
