"""A conversation that goes on."""

import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

import click

from lcspec.cli.chat.display import Display
from lcspec.cli.chat.engine import EngineInUse
from lcspec.cli.chat.keeping import Keeping
from lcspec.cli.chat.terminal import keys_held_back
from lcspec.cli.report import harmless, note, print_statistics
from lcspec.conversation import Conversation, Message
from lcspec.engine import StreamOptions
from lcspec.errors import LcspecError
from lcspec.llama.interrupts import deferred_interrupt
from lcspec.sampling import SamplingParams
from lcspec.stream import Completion, Piece, Stream
from lcspec.tasks.chat import FittedPrompt, fit

RETRY_TEMPERATURE = 0.7
"""Where an answer at temperature 0 would be the same again."""

_RESERVED = 512  # tokens for an answer of any length


@dataclass(frozen=True)
class Answered:
    """What was answered last, and how."""

    model: str
    prompt: list[int]
    completion: Completion


class Session:
    """A conversation, the engine that answers, and how answers are made, shown and kept.

    Args:
        in_use: the engine.
        conversation: the conversation.
        keeping: what is kept of it.
        display: how answers are shown.
        options: the stream's options.
        stats: print all statistics after each answer.
        has_editor: an editor reads what is typed while an answer comes.
    """

    def __init__(
        self,
        in_use: EngineInUse,
        conversation: Conversation,
        keeping: Keeping,
        display: Display,
        options: StreamOptions,
        *,
        stats: bool,
        has_editor: bool,
    ) -> None:
        self.in_use = in_use
        self.conversation = conversation
        self.keeping = keeping
        self.options = options
        self.last: Answered | None = None
        """The last answer, as long as it is one of this conversation."""
        self._display = display
        self._stats = stats
        self._has_editor = has_editor
        self._retries = 0
        self._dropped_turns = 0

    @property
    def sampling(self) -> SamplingParams:
        """How tokens are chosen."""
        return self.options["sampling"]

    def ask(self, text: str) -> None:
        """Answer a message; one that does not fit is left out.

        Raises:
            LcspecError: it can't be answered; the conversation is as it was.
        """
        self._retries = 0
        before = list(self.conversation.messages)
        self.conversation.ask(text)
        self._answer(before, lambda _: self.options, is_new=True)

    def retry(self) -> None:
        """Answer the last message anew: with another seed, or with a temperature where it would be the same.

        Raises:
            LcspecError: as of `ask`; the last answer then stays.
        """
        before = list(self.conversation.messages)
        text = self.conversation.undo()
        if text is None:
            note("there is nothing to answer anew")
            return
        self._retries += 1
        self.conversation.ask(text)
        self._answer(before, self._options_of_retry, is_new=False)

    def undo(self) -> str | None:
        """Drop the last turn, and return what the user said in it; None where there is none."""
        text = self.conversation.undo()
        self.last = None
        self.keeping.save(self.conversation)
        return text

    def go_on_with(self, conversation: Conversation) -> None:
        """Leave the conversation for another one."""
        self.keep_cache()
        self.in_use.engine.clear()  # what is kept of the other one has nothing of this one in it
        self.conversation, self.last, self._dropped_turns = conversation, None, 0
        self.keeping.restore_cache(self.in_use.engine, conversation)

    def keep_cache(self) -> None:
        """Keep what the engine evaluated."""
        self.keeping.save_cache(self.in_use.engine, self.conversation)

    def show_last_turn(self) -> None:
        """Print the last message and its answer once more, where a person sees it."""
        if not (self._has_editor and sys.stdout.isatty()):
            return
        messages = self.conversation.messages
        start = next((i for i in reversed(range(len(messages))) if messages[i]["role"] == "user"), len(messages))
        for message in messages[start:]:
            if message["role"] == "user":
                click.secho("> " + harmless(message["content"]).replace("\n", "\n  "), dim=True)
            else:
                self._display.add(Piece(message["content"], (), None))
                self._display.end()
        click.echo()

    def _options_of_retry(self, fitted: FittedPrompt) -> StreamOptions:
        sampling = self.sampling
        if sampling.temperature > 0:
            if sampling.seed is None:
                return self.options
            return {**self.options, "sampling": replace(sampling, seed=(sampling.seed + self._retries) % (1 << 64))}
        last = self.last
        if last is None or (last.model, last.prompt) != (self.in_use.name, fitted.tokens):
            return self.options
        note(f"at temperature 0 it would be the same: answered at {RETRY_TEMPERATURE:g} this once (/temp sets it)")
        return {**self.options, "sampling": replace(sampling, temperature=RETRY_TEMPERATURE), "rule": None}

    def _answer(self, before: list[Message], options: Callable[[FittedPrompt], StreamOptions], *, is_new: bool) -> None:
        """Answer the last message, or bring the messages back that there were before."""
        try:
            completion = self._complete(options, is_new=is_new)
        except (LcspecError, KeyboardInterrupt):
            self._restore(before)
            raise
        if not completion.text and completion.finish_reason == "cancelled":
            note("stopped before an answer began" + ": the message is left out" * is_new)
            self._restore(before)
            return
        with deferred_interrupt():
            self.conversation.answer(completion.text)
            self.keeping.save(self.conversation)
        if completion.stats.prompt_tokens + len(completion.tokens) >= self.in_use.engine.n_ctx:
            note("the context is full: the answer was cut off")
        print_statistics(completion, full=self._stats)
        if self._has_editor:
            click.echo(err=True)  # some room before the next turn

    def _restore(self, messages: list[Message]) -> None:
        self.conversation.messages[:] = messages
        self.keeping.save(self.conversation)

    def _complete(self, options: Callable[[FittedPrompt], StreamOptions], *, is_new: bool) -> Completion:
        engine = self.in_use.engine
        fitted = fit(engine, self.conversation.messages, self.options.get("max_tokens") or _RESERVED)
        chosen = options(fitted)
        stream = engine.stream(fitted.tokens, **chosen)
        if is_new:
            self.keeping.save(self.conversation)
        if fitted.dropped_turns > self._dropped_turns:
            turns = "turn" if fitted.dropped_turns == 1 else f"{fitted.dropped_turns:,} turns"
            note(f"the context is full: the model no longer sees the first {turns}")
        self._dropped_turns = fitted.dropped_turns
        self._show(stream)
        completion = stream.completion
        if completion.text or completion.finish_reason != "cancelled":
            self.last = Answered(self.in_use.name, fitted.tokens, completion)
        return completion

    def _show(self, stream: Stream) -> None:
        """Show a text as it comes, until Ctrl-C; that waits while something is drawn."""
        n_shown = 0
        with keys_held_back(for_editor=self._has_editor):
            try:
                with deferred_interrupt():
                    self._display.begin()
                with stream:
                    for piece in stream:
                        with deferred_interrupt():
                            self._display.add(piece)
                            n_shown += len(piece.text)
            except KeyboardInterrupt:
                pass
            with suppress(KeyboardInterrupt), deferred_interrupt():  # pressed once more
                if rest := stream.completion.text[n_shown:]:  # a piece that came when it was pressed
                    self._display.add(Piece(rest, (), None))
                self._display.end()
