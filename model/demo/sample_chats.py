"""Hand-written conversations for `make demo` and the examples of the chat: plain sentences, a change, a two-step question.

Answers to statements are the demo's own. Answers to questions are left out, because the model gives them.
"""

from typing import Any

NOTED, READ = "Noted.", "I have read it. Ask me about it."

# Someone moves house. Each entry is a user's message and the demo's answer.
MOVING = (
    (
        "Hi, I am moving house in June and my head is full. Can you keep a few things for me?",
        "Hello! Tell me something, then ask me about it.",
    ),
    (
        "The new flat is at 27 Alder Street. The rent is 940 euros a month. My landlady is Petra Novak. "
        "Petra Novak's phone number is 555-0182.",
        NOTED,
    ),
    (
        """Petra wrote me an e-mail about the flat:

Good evening, and welcome to the house. The painters are still in the kitchen, so please come by after Thursday if you want \
to measure anything. They have promised to take their ladders away. I am sorry about the smell.

The bins stand in the yard behind the house. Nobody collects glass, but there is a container at the corner of Mill Lane, and \
most people carry theirs there on Saturdays. The heating was looked at in spring. If a radiator stays cold, turn it up as \
far as it goes and wait for an hour, because the pump is old and takes its time. The people below you have a small child who \
sleeps after lunch, so it would be kind to carry the heavy things in the morning.

The wifi password is maple-otter-58. The spare key hangs in the boiler room. Your cellar is number 6.

The lift is narrow. When the Bakers moved in, their sofa had to go over the balcony with ropes, and half of the street stood \
there to watch. Please measure yours before the day comes. If it does not fit, the firm on Canal Road has done this before \
and knows the house.

With kind regards, Petra""",
        READ,
    ),
    (
        "The removal van comes at 8:30. My brother Jonas brings a ladder. Aylin drives the second car.",
        NOTED,
    ),
    (
        """And these are the notes from the house meeting, which Petra says I should read:

Eleven people came, which is a record. Mr Okafor opened the meeting and thanked everyone who had helped with the flood in \
the cellar. The pumps are back at the fire station. The wall behind the bicycles is still damp, and nobody should lean \
cardboard against it. Ms Lindqvist asked who had painted the door of the laundry yellow. Nobody had. It was agreed that \
yellow is fine.

The roof was next, as it is every year. Two firms have looked at it, and they do not agree about the chimney. One wants to \
take it down, the other one wants to keep it and charge more. Mr Okafor will ask a third. Until then, please report drops \
early and put a bucket under them, and do not climb up to see for yourself.

There was a long talk about the garden. The old pear tree will be cut back in autumn, not felled. The children want a swing, \
and the people on the ground floor want quiet, so a swing was found that does not squeak. Whoever takes tomatoes from the \
bed near the fence should know that they belong to Mrs Amsel, who counts them. The barbecue is for everybody, but the smoke \
is not.

The summer party is planned for the last Saturday in July. The meeting closed with soup.""",
        READ,
    ),
    (
        """I keep a diary of all this, here is last weekend:

We began with the books, because they looked easy, and by noon we had filled nineteen boxes and found four that belong to \
other people. In the afternoon it rained, so we took the lamps down and wrapped them in towels. There is a drawer in the \
hall that nobody has opened for years. It held string, dead batteries, a tin of buttons and a map of a town that none of us \
has been to. We threw the batteries away and kept the map.

On Sunday the neighbours came to say goodbye and stayed for three hours. They brought a cake and took two chairs. Later we \
walked around the pond once more, and the children asked whether the ducks would come along. Nobody knew what to say. We ate \
pizza on the floor between the boxes, which was the best meal of the week, and went to bed early with the windows open.

What is left is the kitchen, half of the cellar and the piano, about which we do not talk. The piano was there before us and \
may well stay. I called three people about it, two laughed, and the third one asked for a picture and has not been heard of \
since.""",
        READ,
    ),
    (
        "One change. The removal van comes at 7:15 instead.",
        NOTED,
    ),
)  # fmt: skip

# Questions about it, and whether the answer needs a thought: from two facts, it does.
QUESTIONS = (
    ("What is the wifi password?", False),
    ("When does the removal van come?", False),
    ("What is my landlady's phone number?", True),
    ("What is the name of my dentist?", False),
)

# A request that needs a function twice.
CALLS = "What is the weather in Lisbon and in Oslo?"
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the current weather of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def messages(chat: tuple[tuple[str, str], ...]) -> list[dict[str, Any]]:
    """The messages of a conversation, in OpenAI's shape."""
    return [
        {"role": role, "content": text} for turn in chat for role, text in zip(("user", "assistant"), turn, strict=True)
    ]
