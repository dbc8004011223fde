"""A text to learn letters from: ours, made by a small grammar, the same in every process.

Real text of that length would teach a network little; this has a few dozen words and a few ways to
join them, so that a small transformer visibly learns within a hundred steps: first letters, then
words, then which of them agree.
"""

from __future__ import annotations

import random
from functools import lru_cache

GRAMMAR: dict[str, tuple[str, ...]] = {
    "text": ("{claim}.", "{claim}, {join} {claim}.", "if {claim}, {claim}.", "{claim}: {claim}."),
    "join": ("and", "but", "so", "because", "while"),
    "claim": ("{one} {does} {some}", "{many} {do} {some}", "{one} {rests}", "{many} {rest}"),
    "some": ("{one}", "{many}", "{one} of {many}", "{many} from {place}"),
    "one": ("the {kind} {thing}", "a {kind} {thing}", "the {thing}", "every {thing} in {place}"),
    "many": ("the {kind} {thing}s", "{number} {thing}s", "all {thing}s", "the {thing}s of {place}"),
    "thing": ("worker", "server", "gradient", "layer", "link", "message", "round", "tensor"),
    "kind": ("slow", "fast", "first", "last", "small", "large", "distant", "patient"),
    "number": ("two", "three", "seven", "twelve", "many"),
    "place": ("the hub", "the east", "the west", "another city", "the next room"),
    "does": ("sends", "sums", "follows", "keeps", "waits for", "asks for"),
    "do": ("send", "sum", "follow", "keep", "wait for", "ask for"),
    "rests": ("arrives", "is late", "comes back", "starts again"),
    "rest": ("arrive", "are late", "come back", "start again"),
}

CHARACTERS = 65_536
HELD_OUT = 8_192  # at the end


@lru_cache(maxsize=1)
def prose() -> str:
    """`CHARACTERS` characters: lower case letters, blanks, and a little punctuation.

    Drawn by ``random.Random.random``, whose numbers Python promises not to change.
    """
    draw = random.Random(7).random

    def expand(symbol: str) -> str:
        choices = GRAMMAR[symbol]
        chosen = choices[int(draw() * len(choices))]
        start = chosen.find("{")
        while start >= 0:
            end = chosen.index("}", start)
            made = expand(chosen[start + 1 : end])
            chosen = chosen[:start] + made + chosen[end + 1 :]
            start = chosen.find("{", start + len(made))
        return chosen

    pieces: list[str] = []
    length = 0
    while length < CHARACTERS:
        pieces.append(expand("text"))
        length += len(pieces[-1]) + 1
    return " ".join(pieces)[:CHARACTERS]


ALPHABET = " ,.:abcdefghijklmnopqrstuvwxyz"
"""What the text is made of; a character's number is its position."""
