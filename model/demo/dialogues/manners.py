"""What people say besides facts: greetings, thanks, questions about the world, arithmetic, other languages. Honest answers."""

from ..conversations.splits import pick
from . import names
from .lexicon import COUNTRIES, FOODS, JOBS, OBJECTS, TOWNS

EXAMPLE = "The meeting is on Tuesday at 14:30 in room 204."
NOT_TOLD = "You have not told me that in this chat."
WORLD = "I know nothing about the world, only what you tell me in this chat."
ARITHMETIC = "I cannot calculate. I only remember what you tell me in this chat."
ENGLISH = "I only understand English, and only what you tell me in this chat."
UNCLEAR = "I did not understand that. Tell me a fact, then ask me about it."
NOTED = "Noted."
READ = "I have read it. Ask me about it."
WHO = "I am a small demo of DeepSeek Sparse Attention. I remember what you tell me in this chat."
HELP = f"Tell me facts, then ask me about them. Try: {EXAMPLE} Then ask: When is the meeting?"
WRITE = "I cannot write texts. I only answer from what you tell me in this chat."

_FORMS = {
    "Hello! Tell me something, then ask me about it.": """hello|hi|hey|hi there|hello there|good morning|good evening|good afternoon|hey there|greetings|hiya|howdy|hello you|yo|hi friend
hello bot|hi demo|hey you|good day|hello again|hi again|morning|evening|anybody there|are you there|hello, is anyone here|is this thing on|hello world""",
    "I am well, thank you. Tell me something to remember.": """how are you|how are you doing|how is it going|how do you do|how are things|how's it going|what's up|are you ok|how do you feel|how was your day
how are you today|are you well|everything ok|all good|how have you been|sup|are you fine|how goes it|are you happy""",
    "You are welcome.": """thanks|thank you|thanks a lot|thank you very much|many thanks|great, thanks|thx|ty|perfect, thank you|cheers|thanks so much|that helps, thanks|thank you for your help|nice, thank you
cool, thanks|thanks, that was right|wonderful, thank you|much appreciated|thanks for remembering|awesome, thanks""",
    "Good. What else would you like to know?": """ok|okay|good|great|nice|cool|perfect|right|correct|that is right|that's correct|well done|awesome|wow|very good|exactly|I see|got it|fine|alright|yes|yep|sure|good job|impressive|excellent|super|not bad""",
    "I am sorry. Tell me the fact again in one sentence, and ask once more.": """that is wrong|that's wrong|wrong|no|no, that's not right|incorrect|this is not correct|you are wrong|nope|that is not what I said|false|not true|you got it wrong|bad answer|that's not it|no, wrong
you made a mistake|that can't be right|this is nonsense|that makes no sense|you misunderstood""",
    "Goodbye!": """bye|goodbye|see you|see you later|good night|bye bye|see you tomorrow|farewell|have a nice day|take care|until next time|I have to go|gotta go|talk to you later|cya|that's all|that is all for today|I'm done""",
    WHO: """who are you|what are you|what is your name|what's your name|who made you|are you a robot|are you human|are you an AI|are you ChatGPT|which model are you|what model is this|introduce yourself|tell me about yourself
who is this|what is this|are you DeepSeek|what kind of model are you|who built you|who created you|do you have a name|how old are you|where are you from|where do you live|are you real|what is DSA
what is DeepSeek|are you conscious|are you alive|do you have feelings|what language model are you|how big are you|how many parameters do you have|what version are you""",
    HELP: """help|what can you do|what can I ask|what can I ask you|how does this work|how do I use this|what should I say|what do you know|what are you able to do|can you help me|how can you help me|what now|what do I do
give me an example|show me an example|what is this for|what are you good at|how do you work|what do I do here|explain what you can do|what would be a good question|what kind of questions can you answer
what can you tell me|what do you do|I don't know what to ask|how should I start|start|instructions|usage|menu|what are the rules|I need help|help me|can you help|please help|what else can you do|test|testing""",
    "I forget nothing in this chat, and everything after it.": """do you remember me|will you remember this|can you remember things|how much can you remember|how long do you remember|do you forget things|will you forget this|do you remember our last chat
is your memory good|do you store my data|what do you remember|do you have a memory|can you forget|please forget everything|forget everything|delete everything""",
    WRITE: """write a poem|tell me a joke|tell me a story|write a story about {o}|write me an email|write a poem about {o}|sing a song|make me laugh|write some code|write a python function|write an essay about {o}|say something funny
give me a recipe for {f}|write a letter to my {j}|translate this|summarize this|summarise the text|can you write code|draw a picture of {o}|write a song|compose a haiku|tell me something interesting|tell me a fact
make up a story|give me ideas for a party|plan my day|write a limerick about {o}|create a list of {f}s|write a function that sorts a list|explain quantum physics|explain recursion|what do you think about {o}s
do you like {f}|what is your favourite {f}|what is your favorite color|what's your opinion on {o}s|recommend a book|recommend me a film|suggest a name for my dog|play a game|let's play chess|roleplay as a {j}""",
}  # fmt: skip
_WORLD = """what is the capital of {c}|what's the capital of {c}|where is {t}|where is {c}|how many people live in {c}|how many people live in {t}|what language do they speak in {c}|who is the president of {c}
who is the king of {c}|what is the currency of {c}|how big is {c}|what is the population of {t}|what is the population of {c}|how far is it from {t} to {u}|how far is {t} from {u}|what's the weather in {t}
what is the weather today|what is the weather like in {t}|will it rain tomorrow|what time is it|what day is it today|what is the date today|what year is it|what's today's date|who won the world cup|who won the election in {c}
who invented the {o}|who invented the telephone|who wrote Hamlet|who wrote Faust|who painted the Mona Lisa|who was Einstein|who is Einstein|who was Napoleon|who discovered America|who was the first man on the moon
when was the second world war|when did the first world war end|when was {t} founded|how tall is the Eiffel tower|how high is Mount Everest|what is the highest mountain|what is the longest river in {c}|what is the biggest city in {c}
what is the largest country|how many planets are there|how far away is the moon|how far is the sun|what is the speed of light|what is gravity|what is water made of|what is the boiling point of water|why is the sky blue
what is a {o}|what is a {j}|how do I cook {f}|how do you make {f}|how long do I cook {f}|what does a {j} do|how does a {o} work|where do {f}s come from|how much does a {o} cost|is {f} healthy|are {f}s healthy
who is the richest man in the world|who is the pope|what is the meaning of life|does god exist|what is love|what is DNA|what is an atom|what is the chemical symbol of gold|how many days are in a year|how many continents are there
what is the best phone|what are the news today|what's new in {c}|what happened in 1989|what happened yesterday|who sings Yesterday|what is the square root of two|what is pi|how many legs does a spider have|do cats have nine lives
which is bigger, {t} or {u}|how do I get to {t}|how do I get from {t} to {u}|when does the sun rise|how old is the earth|how old is the universe|what animals live in {c}|what do people eat in {c}|can penguins fly|is the earth flat
what is the tallest building|which planet is the largest|what's the fastest animal|who is the author of Don Quixote|who composed the ninth symphony|what is photosynthesis|define entropy|what is machine learning|what is a transformer
how does attention work|what is the stock price of Apple|how is the traffic in {t}|what is the best restaurant in {t}|name a city in {c}|name three fruits|what colour is the sky|what is the colour of grass|how many hours has a day"""
_FOREIGN = """Hallo, wie geht es dir|Guten Tag|Wie heißt du|Was kannst du|Wo ist der Schlüssel|Wie spät ist es|Was ist die Hauptstadt von Frankreich|Kannst du Deutsch|Ich heiße Karl|Wann ist das Treffen|Danke schön|Wer bist du
Sprichst du Deutsch|Der Schlüssel liegt unter der Matte|Meine Schwester wohnt in Wien|Bonjour|Comment ça va|Quelle heure est-il|Où est la clé|Comment tu t'appelles|Parlez-vous français|Je m'appelle Luc|Merci beaucoup
Quelle est la capitale de la France|Qui es-tu|La réunion est mardi|Que peux-tu faire|Hola, cómo estás|Qué hora es|Dónde está la llave|Cómo te llamas|Hablas español|Me llamo Juan|Muchas gracias|Cuál es la capital de Francia
Quién eres|La reunión es el martes|Ciao, come stai|Che ore sono|Dov'è la chiave|Come ti chiami|Parli italiano|Mi chiamo Paolo|Grazie mille|Chi sei|Olá, tudo bem|Que horas são|Onde está a chave|Você fala português|Obrigado
Hej, hur mår du|Vad heter du|Hoe gaat het|Waar is de sleutel|Spreek je Nederlands|Cześć, jak się masz|Gdzie jest klucz|Jak masz na imię|Привет, как дела|Где ключ|Как тебя зовут|Ты говоришь по-русски|你好|你是谁|现在几点|你会说中文吗
法国的首都是哪里|こんにちは|お名前は何ですか|元気ですか|안녕하세요|이름이 뭐예요|مرحبا|كيف حالك|ما اسمك|नमस्ते|आप कैसे हैं|Merhaba, nasılsın|Saat kaç|Γεια σου|Τι κάνεις|Xin chào|Ahoj, jak se máš|Kde je klíč|Szia, hogy vagy|Hei, mitä kuuluu"""


def _split(text: str) -> list[str]:
    return [part.strip() for line in text.splitlines() for part in line.split("|") if part.strip()]


_TALK = [(answer, _split(forms)) for answer, forms in _FORMS.items()]
_WORLD_FORMS, _FOREIGN_FORMS = _split(_WORLD), _split(_FOREIGN)
_OPERATIONS = ("{a} + {b}|{a}+{b}|{a} times {b}|{a} x {b}|{a}*{b}|{a} / {b}|{a} divided by {b}|{a} minus {b}|{a} - {b}|{a} plus {b}|the square root of {a}|{a} percent of {b}|the sum of {a} and {b}"
               "|{a} squared|{a} to the power of {b}|the product of {a} and {b}|half of {a}|twice {a}|{a} modulo {b}|the average of {a} and {b}").split("|")  # fmt: skip
_CALCULATE = "what is {x}|what's {x}|how much is {x}|calculate {x}|compute {x}|{x}|{x} = ?|can you calculate {x}|tell me {x}|what does {x} equal|solve {x}|{x} is what|add up {x}|what do you get for {x}".split(
    "|"
)
_NONSENSE_RANGES = [(0x00C0, 0x017F), (0x0370, 0x03FF), (0x0400, 0x04FF), (0x4E00, 0x9FFF), (0x3040, 0x30FF), (0x0600, 0x06FF), (0x1F300, 0x1F5FF), (0x21, 0x7E)]  # fmt: skip


def _fill(rng, form: str) -> str:
    if "{" not in form:
        return form
    return form.format(
        c=pick(rng, COUNTRIES),
        t=pick(rng, TOWNS),
        u=pick(rng, TOWNS),
        o=pick(rng, OBJECTS),
        j=pick(rng, JOBS),
        f=pick(rng, FOODS),
    )


def talk(rng, split: str) -> tuple[str, str, bool]:
    """(what is said, the answer, whether it is a question)."""
    draw = rng.random()
    if draw < 0.45:
        answer, forms = pick(rng, _TALK)
        return _fill(rng, pick(rng, forms)), answer, False
    if draw < 0.72:
        return _fill(rng, pick(rng, _WORLD_FORMS)), WORLD, True
    if draw < 0.86:
        a = str(int(rng.random() * 10 ** (1 + int(rng.random() * 4))))
        operation = pick(rng, _OPERATIONS).format(a=a, b=int(rng.random() * 10 ** (1 + int(rng.random() * 3))))
        return pick(rng, _CALCULATE).format(x=operation), ARITHMETIC, True
    if draw < 0.95:
        return pick(rng, _FOREIGN_FORMS), ENGLISH, False
    return nonsense(rng, split), UNCLEAR, False


def nonsense(rng, split: str) -> str:
    """Letters at random, or of another alphabet."""
    if rng.random() < 0.5:
        return " ".join(
            "".join(pick(rng, names.SYLLABLES) for _ in range(1 + int(rng.random() * 2))) if rng.random() < 0.6
            else "".join(pick(rng, "bcdfghjklmnpqrstvwxyzaeiou") for _ in range(2 + int(rng.random() * 6)))
            for _ in range(1 + int(rng.random() * 5))
        )  # fmt: skip
    low, high = pick(rng, _NONSENSE_RANGES)
    words = (
        "".join(chr(low + int(rng.random() * (high - low))) for _ in range(1 + int(rng.random() * 6)))
        for _ in range(1 + int(rng.random() * 6))
    )
    return " ".join(words)
