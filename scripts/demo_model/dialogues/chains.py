"""Questions of two steps: a first fact that names somebody or something, and a second one about what was named."""

import re
from collections.abc import Sequence

from . import manners, names
from .lexicon import ANIMALS, DAYS, JOBS, RELATIONS, SUBJECTS
from .links import FIRST, SECOND, First, Second
from .memory import Memory
from .named import NAMED, VALUES, below
from .phrases import ME, Fact, Phrase, Question, capital
from .splits import pick, split_of
from .turns import QUOTE, REFUSAL, VALUE, WORDS, Chain, Piece, Turn, yours
from .turns import answer as answer_of

_RELATIONS = tuple(relation for relation in RELATIONS if relation not in ("dog", "cat", "horse", "parrot", "hamster"))
_KIND_OF = {"person": "person", "org": "org", "pet": "animal"}  # of subjects that `predicates` knows


_CLAUSE = re.compile(r"\b(who|whoever|that|person|one|where|with|is|has)\b")


def _value(memory: Memory, kind: str) -> str:
    make = VALUES.get(kind)
    return make(memory.rng, memory.split) if make else memory.grammar.value(kind)


def _fields(memory: Memory, named: str) -> dict[str, str]:
    """What the placeholders of a first link stand for."""
    rng, grammar = memory.rng, memory.grammar
    owner = ME if rng.random() < 0.3 else grammar.person()
    if owner.person == 3 and rng.random() < 0.5:
        owner = Phrase.of(names.given(rng, memory.split), "person")
    thing = grammar.thing()
    while thing.plural:
        thing = grammar.thing()
    return {
        "b": named, "a": "" if owner.person == 1 else owner.text, "a's": owner.possessive, "t": thing.text, "e": grammar.event().text, "o": grammar.org().text,
        "r": pick(rng, _RELATIONS), "r2": pick(rng, _RELATIONS), "j": pick(rng, JOBS), "s": pick(rng, SUBJECTS), "p": pick(rng, ANIMALS),
        "n": str(below(rng, 900) + 1), "d": pick(rng, DAYS), "f": f"the {pick(rng, ('website', 'database', 'wiki', 'shop', 'backup', 'mail', 'forum', 'blog', names.word(rng, memory.split)))}",
    }  # fmt: skip


def _fitting(forms: Sequence[str], fields: dict[str, str]) -> list[str]:
    return [form for form in forms if fields["a"] or "{a}" not in form]


def _of_split(forms: tuple[str, ...], split: str) -> list[str]:
    return (
        [form for form in forms if split_of(form) == split]
        or [form for form in forms if split_of(form) == "train"]
        or list(forms)
    )


def _first(memory: Memory, link: First, named: str) -> tuple[Fact, str] | None:
    """The fact, and a description of what it names."""
    rng, fields = memory.rng, _fields(memory, named)
    statements, descriptions, asks = (
        _fitting(f, fields) for f in (_of_split(link.statements, memory.wording.split), link.descriptions, link.asks)
    )
    if not (statements and descriptions and asks):
        return None
    sentence = capital(pick(rng, statements).format(**fields))
    direct = [ask.format(**fields) for ask in asks]
    described = [form.format(**fields) for form in descriptions]
    # Every description and question is a signature, so that nothing else can be meant.
    aliases = tuple(name.lower() for name in (*direct, *described))
    if "{a's} {r}" in link.descriptions:
        owner = fields["a"].lower() or "me"
        aliases += (f"relation {fields['r']}|{owner}",)
    question = Question(f"link {direct[0]}".lower(), named, direct, [], [described[0]], described, aliases)
    return Fact(sentence, [question], Phrase(named, named.lower(), "link"), None, [], "", "link"), pick(rng, described)


def _asks(link: Second, x: str, pet: str) -> list[str]:
    clause = _CLAUSE.search(x)
    own = x + "'s"
    return [ask.format(**{"x": x, "x's": own, "p": pet}) for ask in link.asks if not clause or "{x's}" not in ask]


def _second(memory: Memory, link: Second, named: str, described: str) -> tuple[Fact, str]:
    """The fact about what was named, and the question about it by its description."""
    rng, pet = memory.rng, pick(memory.rng, ANIMALS)
    value = _value(memory, link.value)
    form = pick(rng, _of_split(link.statements, memory.wording.split))
    if " a {v}" in form and value[:1].lower() in "aeiou":
        form = form.replace(" a {v}", " an {v}")
    sentence = capital(form.format(b=named, v=value, p=pet))
    direct = _asks(link, named, pet)
    aliases = tuple(re.sub(r" (the|my|our) ", " ", ask.lower()) for ask in direct)
    aliases += tuple(
        f"{ask.split(' ', 1)[0]}|{named.lower()}" for ask in direct if ask.startswith(("where is", "when is"))
    )
    question = Question(f"link {link.asks[0]}|{named.lower()}", value, direct, [], [], [], aliases)
    fact = Fact(sentence, [question], Phrase(named, named.lower(), "link"), None, [], "", "link")
    return fact, pick(rng, _asks(link, described, pet))


def _general(memory: Memory, kind: str, named: str, described: str) -> tuple[Fact, str] | None:
    """A second fact with any verb that fits."""
    fitting = [p for p in memory.wording.predicates if kind in p.subjects]
    predicate = pick(memory.rng, fitting)
    fact = memory.grammar.predicate(predicate, Phrase(named, named.lower(), kind))
    asked = memory.grammar.predicate(predicate, Phrase(described, "?", kind), fact.questions[0].value).questions[0]
    return (fact, pick(memory.rng, asked.direct)) if asked.direct else None


def _chain(memory: Memory, first: First, second: Second | None) -> Chain | None:
    named = NAMED[first.kind](memory.rng, memory.split)
    one = _first(memory, first, named)
    if one is None or any(named.lower() == chain.first.questions[0].value.lower() for chain in memory.chains):
        return None
    two = _second(memory, second, named, one[1]) if second else _general(memory, _KIND_OF[first.kind], named, one[1])
    if two is None or not memory.free(one[0]) or not memory.free(two[0]):
        return None
    return Chain(one[0], two[0], two[1])


def draw(memory: Memory, register: bool = True) -> Chain | None:
    """A chain whose facts are to be stated, in either order, perhaps among others like them; or one that is only asked for."""
    rng = memory.rng
    for _ in range(4):
        first = pick(rng, FIRST) if rng.random() < 0.6 else FIRST[below(rng, 3)]
        fitting = [link for link in SECOND if first.kind in link.kinds]
        second = None if first.kind in _KIND_OF and rng.random() < 0.25 else pick(rng, fitting)
        chain = _chain(memory, first, second)
        if chain is None:
            continue
        if not register:
            return chain
        memory.chains.append(chain)
        facts = [chain.first, chain.second]
        if rng.random() < 0.25:
            facts.reverse()
        while rng.random() < 0.35:  # another one of the same shape
            other = _chain(memory, first, second if rng.random() < 0.8 else pick(rng, fitting))
            if other is not None and not _overlap(chain, other):
                memory.chains.append(other)
                facts += [other.first, other.second]
        if second and rng.random() < 0.4:  # something else about the same
            link = pick(rng, fitting)
            extra, _ = _second(memory, link, chain.first.questions[0].value, "it")
            if link is not second and memory.free(extra) and not _names(extra) & _names(chain.second):
                facts.insert(below(rng, len(facts) + 1), extra)
        if rng.random() < 0.3:
            rng.shuffle(facts)
        memory.pending = [*reversed(facts), *memory.pending]
        memory.hurries = rng.random() < 0.7
        return chain
    return None


def _names(fact: Fact) -> set[str]:
    return {name for q in fact.questions for name in (q.signature, *q.aliases)}


def chain_names(chain: Chain) -> set[str]:
    """The signatures and aliases of both facts."""
    return _names(chain.first) | _names(chain.second)


def _overlap(one: Chain, other: Chain) -> bool:
    return bool(chain_names(one) & chain_names(other))


def is_current(memory: Memory, fact: Fact) -> bool:
    known = memory.known.get(fact.questions[0].signature)
    return known is not None and known.fact is fact and not known.old


def ready(memory: Memory) -> list[Chain]:
    """Chains whose two facts have been stated and have not changed since, and that have not been asked for."""
    return [c for c in memory.chains if not c.asked and is_current(memory, c.first) and is_current(memory, c.second)]


def half(memory: Memory) -> list[Chain]:
    """Chains of which only the first fact has been stated."""
    return [
        c for c in memory.chains if is_current(memory, c.first) and c.second.questions[0].signature not in memory.taken
    ]


def ask(memory: Memory, chain: Chain, before: str, thinks: bool) -> Turn:
    """The chain's question. Without a thought only its first step is answered."""
    chain.asked = thinks
    first, second = (memory.known[fact.questions[0].signature] for fact in (chain.first, chain.second))
    text = memory.join(before, memory.typed_question(chain.question))
    if not thinks:
        value = yours(first.question.value)
        answer: list[Piece] = [
            (value, VALUE),
            (f" is only the first step. {first.said}: ", WORDS),
            (first.sentence, QUOTE),
            (" Turn thinking on for the next one.", WORDS),
        ]
        return Turn(text, answer, "two hops", value, None, None, first.where, 0)
    thought: list[Piece] = [("First: ", WORDS), (first.sentence, QUOTE), (" Then: ", WORDS), (second.sentence, QUOTE)]
    answer = answer_of(second)
    return Turn(
        text, answer, "two hops", answer[0][0], thought, None, second.where, memory.length + len(before) - second.at
    )


def refuse(memory: Memory, before: str) -> Turn | None:
    """A question of two steps, after a thought, whose second fact was not told."""
    chains = half(memory)
    if not chains:
        return None
    chain = pick(memory.rng, chains)
    first = memory.known[chain.first.questions[0].signature]
    text = memory.join(before, memory.typed_question(chain.question))
    thought: list[Piece] = [
        ("First: ", WORDS),
        (first.sentence, QUOTE),
        (" Then: ", WORDS),
        ("nothing was said about that.", REFUSAL),
    ]
    return Turn(text, [(manners.NOT_TOLD, REFUSAL)], "unanswerable", manners.NOT_TOLD, thought)
