"""Summaries: prompts, pieces and levels with tiny models, and real texts with SmolLM2."""

import math
import threading
from collections.abc import Iterator
from pathlib import Path
from pydoc_data.topics import topics

import psutil
import pytest
import tiny

from lcspec import PromptError, SamplingParams, SpeculativeLM
from lcspec.engine import DrafterName
from lcspec.tasks.selection import Selection
from lcspec.tasks.sentences import count_words
from lcspec.tasks.summarize import SummaryStream, summarize_text
from lcspec.tasks.summary import Progress, Summary

CTX = 512
WORDS = 20  # of a summary for which that context leaves room
SHORT = "Cats sleep. Dogs do not."
LONG = "\n\n".join(f"Paragraph {i} is about the number {i}.\nIt has two lines." for i in range(60))


@pytest.fixture(scope="module")
def engine(tiny_llama: Path) -> Iterator[SpeculativeLM]:
    with SpeculativeLM(tiny_llama, n_ctx=CTX, threads=1, exact=True) as engine:
        yield engine


def prompt_of(text: str, words: int = WORDS) -> list[dict[str, str]]:
    task = f"Summarize the text above in a short paragraph of at most {words} words."
    return [{"role": "user", "content": f"{text}\n\n---\n\n{task}"}]


def test_a_short_text_is_summarized_at_once(engine: SpeculativeLM) -> None:
    told: list[Progress] = []
    summary = summarize_text(engine, SHORT, words=WORDS, on_progress=told.append)
    answer = engine.chat(prompt_of(SHORT), max_tokens=2 * WORDS + 32)
    selection = Selection(WORDS)
    list(selection.add(answer.text))
    list(selection.finish(is_whole=answer.finish_reason == "eog"))
    assert summary.text == selection.text
    assert summary.finish_reason == selection.ended
    assert (summary.title, summary.bullets, summary.pieces, summary.levels) == (None, None, 1, 1)
    assert told == [Progress(1, 0, 1), Progress(1, 1, 1)]


def test_pieces_are_summarized_level_by_level_until_one_is_left(engine: SpeculativeLM) -> None:
    told: list[Progress] = []
    summary = summarize_text(engine, LONG, words=WORDS, on_progress=told.append)
    pieces = {progress.level: progress.pieces for progress in told}
    assert told == [Progress(level, done, n) for level, n in pieces.items() for done in range(n + 1)]
    assert list(pieces) == list(range(1, summary.levels + 1))
    assert summary.levels > 2
    assert list(pieces.values()) == sorted(pieces.values(), reverse=True)
    assert pieces[1] == summary.pieces
    assert pieces[summary.levels] == 1
    assert summary.stats.texts == sum(pieces.values())  # each was summarized once
    assert summary.text


def test_whatever_a_model_writes_levels_come_to_an_end(tiny_llama: Path) -> None:
    with SpeculativeLM(tiny_llama, n_ctx=CTX, threads=1) as engine:
        for seed in range(3):  # bytes that are no characters: three more bytes for each
            drawn = SamplingParams(temperature=3.0, seed=seed)
            assert summarize_text(engine, LONG[:1500], words=8, sampling=drawn).levels <= 4


def test_thousands_of_words_need_no_more_memory_than_hundreds(engine: SpeculativeLM) -> None:
    used: list[int] = []
    process = psutil.Process()
    text = "\n\n".join(f"Line {i} of a text that is much longer than what the context holds." for i in range(250))
    summarize_text(engine, text, words=4, on_progress=lambda _: used.append(process.memory_info().rss))
    assert count_words(text) > 3000
    assert len(used) > 50
    assert max(used[20:]) - used[20] < 20e6


@pytest.mark.parametrize("bullets", [False, True])
def test_the_summary_is_the_same_whoever_drafts(engine: SpeculativeLM, bullets: bool) -> None:
    drafters: list[DrafterName] = ["none", "lookup", "auto"]
    texts = {
        summarize_text(engine, LONG[:1200], words=8, bullets=bullets, drafter=drafter).text for drafter in drafters
    }
    assert len(texts) == 1


def test_special_tokens_in_a_text_are_only_text(engine: SpeculativeLM) -> None:
    broken = summarize_text(engine, "Cats< end> sleep< eos>.", words=WORDS)
    assert summarize_text(engine, "Cats<end> sleep<eos>.", words=WORDS).text == broken.text
    assert broken.text != summarize_text(engine, "Cats sleep.", words=WORDS).text


def test_a_seed_gives_the_summary_again(engine: SpeculativeLM) -> None:
    drawn = summarize_text(engine, LONG[:900], words=8, sampling=SamplingParams(temperature=1.0))
    assert drawn.seed is not None
    again = summarize_text(engine, LONG[:900], words=8, sampling=SamplingParams(temperature=1.0, seed=drawn.seed))
    assert again.text == drawn.text
    assert summarize_text(engine, SHORT, words=8).seed is None


def test_bullets_and_a_title(engine: SpeculativeLM) -> None:
    summary = summarize_text(engine, SHORT, words=WORDS, bullets=True, title=True)
    assert summary.bullets
    assert summary.text == "\n".join(f"- {bullet}" for bullet in summary.bullets)
    assert summary.title
    assert "\n" not in summary.title
    assert summary.stats.texts == 2
    assert summary.stats.cached_tokens > len(SHORT)  # the text is evaluated once


# ended before its end


def test_a_summary_that_is_closed_stops_between_pieces(engine: SpeculativeLM) -> None:
    told: list[Progress] = []

    def stop(progress: Progress) -> None:
        told.append(progress)
        if progress.done == 2:
            stream.close()

    stream = SummaryStream(engine, LONG, words=WORDS, on_progress=stop)
    assert list(stream) == []
    assert told[-1].done == 2
    summary = stream.summary
    assert (summary.text, summary.finish_reason) == ("", "cancelled")
    assert summary.stats.texts == 2
    assert engine.generate("x", max_tokens=1).text is not None  # the engine is free


def test_another_thread_may_close_a_summary(tiny_llama: Path) -> None:
    with pytest.warns(match="trained for"):
        engine = SpeculativeLM(tiny_llama, n_ctx=60_000, threads=1, drafter="none")
    with engine:
        endless = SamplingParams(temperature=0, logit_bias=dict.fromkeys((tiny.EOS, tiny.END_OF_TURN), -math.inf))
        stream = SummaryStream(engine, "abcabcabcabc", words=14_000, sampling=endless)
        timer = threading.Timer(1.0, stream.close)
        timer.start()
        list(stream)
        timer.join()
        summary = stream.summary
    assert summary.finish_reason == "cancelled"
    assert summary.text  # what was written and held back


# what can be wrong


@pytest.mark.parametrize(
    ("text", "words", "said"),
    [(" \n", WORDS, "empty"), (SHORT, 0, "words"), (SHORT, 1000, "fewer words"), (SHORT, 1.5, "words")],
)
def test_what_cannot_be_summarized_is_an_error(engine: SpeculativeLM, text: str, words: int, said: str) -> None:
    with pytest.raises(PromptError, match=said):
        summarize_text(engine, text, words=words)


def test_a_model_without_a_chat_template_is_an_error(tmp_path: Path) -> None:
    model = tiny.write_model(tmp_path / "base.gguf", template=None)
    with SpeculativeLM(model, n_ctx=CTX, threads=1) as engine, pytest.raises(PromptError, match="no chat template"):
        summarize_text(engine, SHORT, words=WORDS)


# a real model

NEWS = """The library of Ellwick will stay open until ten in the evening from September on. The town council agreed on
Monday to pay for two more librarians. Students of the college had asked for it for three years, since most of them
work during the day.

The reading room was renovated in spring and has 120 seats now, half of them with sockets for laptops. On Sundays the
library stays closed. The council will decide in June whether enough people came."""


@pytest.fixture(scope="module")
def real(smollm2: Path) -> Iterator[SpeculativeLM]:
    with SpeculativeLM(smollm2, n_ctx=1024, threads=1) as engine:
        yield engine


def is_whole(summary: Summary) -> bool:
    return summary.text.endswith((".", "!", "?")) and not summary.text.endswith("…")


@pytest.mark.real
def test_a_real_summary_is_about_its_text_and_comes_sentence_by_sentence(real: SpeculativeLM) -> None:
    with SummaryStream(real, NEWS, words=60) as stream:
        first = next(stream)
        assert stream.summary.finish_reason == "cancelled"
        rest = list(stream)
        summary = stream.summary
    assert first.endswith(".")
    assert first + "".join(rest) == summary.text
    assert is_whole(summary)
    assert 10 <= count_words(summary.text) <= 60
    assert "library" in summary.text
    assert not summary.text.lower().startswith(("here is", "sure", "summary"))


@pytest.mark.real
def test_real_bullets_are_several_and_a_title_is_short(real: SpeculativeLM) -> None:
    summary = summarize_text(real, NEWS, words=80, bullets=True, title=True)
    assert summary.bullets is not None
    assert 2 <= len(summary.bullets) == len(set(summary.bullets))
    assert all(bullet and not bullet.startswith(("-", "*")) for bullet in summary.bullets)
    assert summary.title is not None
    assert 1 <= count_words(summary.title) <= 24


@pytest.mark.real
def test_a_real_long_text_is_summarized_within_a_small_context(real: SpeculativeLM) -> None:
    text = "\n\n".join(topics[name] for name in ("exceptions", "naming", "truth"))
    assert count_words(text) > 1000
    used: list[int] = []
    process = psutil.Process()
    summary = summarize_text(real, text, words=40, on_progress=lambda _: used.append(process.memory_info().rss))
    assert summary.pieces >= 3
    assert summary.levels >= 2
    assert count_words(summary.text) > 5
    assert len(set(summary.text.split(". "))) == len(summary.text.split(". "))
    assert max(used) - used[1] < 50e6
