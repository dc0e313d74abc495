"""A long conversation made to fit the context, by leaving out its oldest turns."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from lcspec.conversation import Message
from lcspec.engine import SpeculativeLM
from lcspec.errors import PromptError

_RESERVED = 4  # the most that is kept for the answer is a context divided by this


@dataclass(frozen=True)
class FittedPrompt:
    """What of a conversation the model is given.

    Attributes:
        tokens: the prompt.
        dropped_turns: how many of the oldest turns are left out of it.
        messages: the messages that are in it.
    """

    tokens: list[int]
    dropped_turns: int
    messages: list[Message]


def fit(engine: SpeculativeLM, messages: Sequence[Message], reserve: int) -> FittedPrompt:
    """Return the prompt for a conversation, without its oldest turns where all of it does not fit.

    The system prompt and the last turn always stay. When turns have to go, so many go that the prompt fills half of
    the context, so that the next turns find room. Which ones go depends on the messages alone: give all of them each
    time, and the same turns stay away while the conversation grows, and when it is resumed. Where that is allowed,
    what the engine's cache holds of the others moves up, so that only what is new is evaluated.

    Args:
        engine: the engine.
        messages: the conversation, up to a message of the user's.
        reserve: tokens to leave for the answer; a quarter of the context at the most.

    Raises:
        PromptError: the system prompt and the last turn alone do not fit, or the model can't chat.
    """
    room = engine.n_ctx - max(1, min(reserve, engine.n_ctx // _RESERVED))
    system, turns = _turns(messages)
    tokens = engine.chat_prompt(messages)
    if len(tokens) <= room:
        return FittedPrompt(tokens, 0, list(messages))
    dropped = max(1, _dropped(*_sizes(engine, system, turns), room, goal=engine.n_ctx // 2)) if len(turns) > 1 else 0
    while True:
        kept = [*system, *(message for turn in turns[dropped:] for message in turn)]
        tokens = engine.chat_prompt(kept)
        if len(tokens) <= room:
            break
        if dropped >= len(turns) - 1:
            raise PromptError(
                f"the last message and the system prompt have {len(tokens):,} tokens and the context holds "
                f"{engine.n_ctx:,}, {engine.n_ctx - room:,} of them for the answer: shorten the message or take more "
                "context (n_ctx, --ctx)"
            )
        dropped += 1
    engine.shift_to(tokens)
    return FittedPrompt(tokens, dropped, kept)


def _turns(messages: Sequence[Message]) -> tuple[list[Message], list[list[Message]]]:
    """Split a conversation into its system messages and its turns, each of which begins with the user's message."""
    system: list[Message] = []
    turns: list[list[Message]] = []
    for message in messages:
        if message["role"] == "system" and not turns:
            system.append(message)
        elif message["role"] == "user" or not turns:
            turns.append([message])
        else:
            turns[-1].append(message)
    return system, turns


@dataclass(frozen=True)
class _Size:
    """About how many tokens a turn has in a prompt."""

    asked: int
    """As the last turn, without an answer."""
    whole: int


def _sizes(engine: SpeculativeLM, system: list[Message], turns: Sequence[Sequence[Message]]) -> tuple[int, list[_Size]]:
    """Return about how many tokens a prompt has without turns, and how many each turn adds."""

    def count(text: str) -> int:
        return len(engine.target.tokenize(text, add_special=False, parse_special=False))

    def count_prompt(*messages: Message) -> int:
        return len(engine.chat_prompt([*system, *messages]))

    asked, answered = {"role": "user", "content": "a"}, {"role": "assistant", "content": "a"}
    base = count_prompt(asked)
    around = count_prompt(asked, answered, asked) - base - 2 * count("a")  # what a template puts into each turn
    sizes = []
    for turn in turns:
        contents = [count(message["content"]) for message in turn]
        sizes.append(_Size(contents[0], sum(contents) + around))
    return base - count("a"), sizes


def _dropped(base: int, sizes: Sequence[_Size], room: int, goal: int) -> int:
    """Return how many turns are gone by now, the conversation having been fitted at each turn as here."""
    ends = [0, *accumulate(size.whole for size in sizes)]
    gone = 0
    for last, size in enumerate(sizes):
        length = base + ends[last] + size.asked  # with all turns
        if length - ends[gone] > room:
            gone = min(bisect_left(ends, length - goal), last)
            if length - ends[gone] > goal:  # the last turn alone is longer: keep what fits
                gone = min(bisect_left(ends, length - room), last)
    return gone
