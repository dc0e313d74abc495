"""llama-cpp-python's methods, beside llama-cpp-python itself."""

import inspect
import json
from collections.abc import Callable, Iterator
from numbers import Real
from pathlib import Path
from typing import Any, get_type_hints

import gguf
import llama_cpp
import numpy as np
import pytest
import tiny
from llama_cpp import llama_types
from prompts import PROMPTS

from lcspec import BusyError, ClosedError, PromptError, SpeculativeLM
from lcspec.llama_cpp_api import types

CTX = 256  # cells; up to as many passes of any width are exact

COMPLETIONS: dict[str, dict[str, Any]] = {
    "the default length": {},
    "a length": {"max_tokens": 40},
    "a stop string": {"max_tokens": 40, "stop": "."},
    "stop strings": {"max_tokens": 60, "stop": ["France is a", "\n\n"]},
    "a stop string that does not come": {"max_tokens": 20, "stop": ["neither this"]},
    "no stop strings": {"stop": None},
    "an echo": {"echo": True},
    "a name": {"model": "my model"},
    "biases": {"logit_bias": {7042: -100.0, 28: 5.0}},
    "a forbidden token": {"logit_bias": {7042: float("-inf")}},
    "samplers that do nothing at temperature 0": {"top_k": 3, "top_p": 0.1, "typical_p": 0.2, "min_p": 0.9},
}
CHATS: dict[str, dict[str, Any]] = {
    "all of the answer": {},
    "a length": {"max_tokens": 5},
    "a stop string": {"stop": "Blue"},
    "stop strings": {"stop": ["never", "\n3"]},
    "a name": {"model": "my model"},
    "biases": {"logit_bias": {33: -100.0}},
    "nothing asked for": {"tools": None, "tool_choice": None, "response_format": {"type": "text"}, "grammar": None},
}
MESSAGES = [
    {"role": "system", "content": "You answer briefly."},
    {"role": "user", "content": "Name three colors."},
]
FRANCE = "The capital of France is"


@pytest.fixture(scope="module")
def llama(smollm2: Path) -> Iterator[llama_cpp.Llama]:
    model = llama_cpp.Llama(
        str(smollm2), n_ctx=CTX, logits_all=True, flash_attn=True, verbose=False, n_threads=1, n_threads_batch=1
    )
    yield model
    model.close()


@pytest.fixture(scope="module")
def engine(smollm2: Path) -> Iterator[SpeculativeLM]:
    with SpeculativeLM(smollm2, n_ctx=CTX, threads=1) as engine:
        yield engine


@pytest.fixture(scope="module")
def tiny_engine(tiny_llama: Path) -> Iterator[SpeculativeLM]:
    with SpeculativeLM(tiny_llama, drafter="lookup", n_ctx=CTX, threads=1) as engine:
        yield engine


def kinds(value: Any) -> Any:
    """Return the keys and types of a dictionary, at all levels; all real numbers are of one type."""
    if isinstance(value, dict):
        return {key: kinds(one) for key, one in value.items()}
    if isinstance(value, list):
        return [kinds(one) for one in value]
    return "number" if isinstance(value, Real) and not isinstance(value, int) else type(value).__name__


def same(answer: dict[str, Any], theirs: dict[str, Any], prefix: str) -> None:
    """Check that two answers differ in what is made anew for each, and in that only."""
    assert list(answer) == list(theirs)
    assert kinds(answer) == kinds(theirs)
    for one in (answer, theirs):
        assert one.pop("id").startswith(f"{prefix}-")
        assert one.pop("created") > 1_700_000_000
    assert answer == theirs
    json.dumps(answer)


# the same as llama-cpp-python


@pytest.mark.parametrize("name", ["create_completion", "__call__", "create_chat_completion"])
def test_the_signature_is_the_same(name: str) -> None:
    def parameters(method: Callable[..., Any]) -> list[tuple[str, Any, Any]]:
        found = list(inspect.signature(method).parameters.values())[1:]
        return [(one.name, one.kind, None if one.default in ([], ()) else one.default) for one in found]

    ours, theirs = (parameters(getattr(one, name)) for one in (SpeculativeLM, llama_cpp.Llama))
    assert ours == [(n, k, None if n == "stop" else d) for n, k, d in theirs]


def test_the_types_are_named_as_there_and_have_no_other_keys() -> None:
    ours = {name: one for name, one in vars(types).items() if hasattr(one, "__required_keys__")}
    assert len(ours) == 14
    for name, one in ours.items():
        assert get_type_hints(one).keys() <= get_type_hints(getattr(llama_types, name)).keys()


@pytest.mark.real
@pytest.mark.parametrize("arguments", COMPLETIONS.values(), ids=COMPLETIONS.keys())
def test_a_completion_is_the_same(engine: SpeculativeLM, llama: llama_cpp.Llama, arguments: dict[str, Any]) -> None:
    arguments = {"temperature": 0, **arguments}
    theirs: Any = llama.create_completion(FRANCE, **arguments)
    answer: Any = engine.create_completion(FRANCE, **arguments)
    same(answer, theirs, "cmpl")
    assert answer["choices"][0]["text"]


@pytest.mark.real
@pytest.mark.parametrize("prompt", PROMPTS[1::3])
def test_a_call_is_the_same(engine: SpeculativeLM, llama: llama_cpp.Llama, prompt: str) -> None:
    same(
        engine(prompt, max_tokens=30, temperature=0),  # type: ignore[arg-type]
        llama(prompt, max_tokens=30, temperature=0),  # type: ignore[arg-type]
        "cmpl",
    )


@pytest.mark.real
@pytest.mark.parametrize("max_tokens", [None, 0, -1])
def test_without_a_length_a_text_fills_the_context(
    engine: SpeculativeLM, llama: llama_cpp.Llama, max_tokens: int | None
) -> None:
    prompt = "a, b, c, " * 40  # 240 tokens
    answer: Any = engine.create_completion(prompt, max_tokens=max_tokens, temperature=0)
    theirs: Any = llama.create_completion(prompt, max_tokens=max_tokens, temperature=0)
    assert answer["usage"]["total_tokens"] == CTX
    same(answer, theirs, "cmpl")


@pytest.mark.real
def test_a_prompt_can_be_tokens(engine: SpeculativeLM, llama: llama_cpp.Llama) -> None:
    tokens = llama.tokenize(FRANCE.encode())
    answer: Any = engine.create_completion(tokens, temperature=0)
    theirs: Any = llama.create_completion(tokens, temperature=0)
    same(answer, theirs, "cmpl")


@pytest.mark.real
@pytest.mark.parametrize("arguments", CHATS.values(), ids=CHATS.keys())
def test_an_answer_to_messages_is_the_same(
    engine: SpeculativeLM, llama: llama_cpp.Llama, arguments: dict[str, Any]
) -> None:
    arguments = {"temperature": 0, **arguments}
    answer: Any = engine.create_chat_completion(MESSAGES, **arguments)
    theirs: Any = llama.create_chat_completion(MESSAGES, **arguments)  # type: ignore[arg-type]
    same(answer, theirs, "chatcmpl")
    assert answer["choices"][0]["message"]["content"]


@pytest.mark.real
@pytest.mark.parametrize("arguments", COMPLETIONS.values(), ids=COMPLETIONS.keys())
def test_a_stream_is_the_same(engine: SpeculativeLM, llama: llama_cpp.Llama, arguments: dict[str, Any]) -> None:
    arguments = {"temperature": 0, **arguments}
    theirs: list[Any] = list(llama.create_completion(FRANCE, stream=True, **arguments))
    chunks: list[Any] = list(engine.create_completion(FRANCE, stream=True, **arguments))
    echo = FRANCE if arguments.get("echo") else ""  # which is left out there
    assert text_of(chunks) == echo + text_of(theirs)
    assert len({chunk["id"] for chunk in chunks}) == 1
    same(chunks[-1], theirs[-1], "cmpl")
    for chunk in chunks[:-1]:
        assert kinds(chunk) == kinds(theirs[0])
        assert chunk["choices"][0]["text"]


@pytest.mark.real
@pytest.mark.parametrize("arguments", CHATS.values(), ids=CHATS.keys())
def test_a_stream_of_an_answer_is_the_same(
    engine: SpeculativeLM, llama: llama_cpp.Llama, arguments: dict[str, Any]
) -> None:
    arguments = {"temperature": 0, "stream": True, **arguments}
    theirs: list[Any] = list(llama.create_chat_completion(MESSAGES, **arguments))  # type: ignore[arg-type]
    chunks: list[Any] = list(engine.create_chat_completion(MESSAGES, **arguments))
    assert content_of(chunks) == content_of(theirs)
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert [kinds(chunk) for chunk in chunks[:-1]] == [kinds(theirs[0]), *[kinds(theirs[1])] * (len(chunks) - 2)]
    for ours, other in (chunks[0], theirs[0]), (chunks[-1], theirs[-1]):
        assert kinds(ours) == kinds(other)
        assert ours["choices"] == other["choices"]


def text_of(chunks: list[Any]) -> str:
    return "".join(chunk["choices"][0]["text"] for chunk in chunks)


def content_of(chunks: list[Any]) -> str:
    return "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)


# log-probabilities


@pytest.mark.real
@pytest.mark.parametrize("n_top", [0, 3])
def test_the_scores_of_a_text_are_the_same(engine: SpeculativeLM, llama: llama_cpp.Llama, n_top: int) -> None:
    prompt = "Die drei größten Städte:"
    arguments: dict[str, Any] = {"temperature": 0, "max_tokens": 12, "logprobs": n_top}
    answer: Any = engine.create_completion(prompt, **arguments)
    theirs: Any = llama.create_completion(prompt, **arguments)
    assert kinds(answer) == kinds(theirs)
    ours, other = answer["choices"][0]["logprobs"], theirs["choices"][0]["logprobs"]
    assert (ours["tokens"], ours["text_offset"]) == (other["tokens"], other["text_offset"])
    assert ours["token_logprobs"] == near(other["token_logprobs"])
    for one, its in zip(ours["top_logprobs"], other["top_logprobs"], strict=True):
        assert one == {text: near(value) for text, value in its.items()}

    chunks: list[Any] = list(engine.create_completion(prompt, stream=True, **arguments))
    *scored, last = [chunk["choices"][0] for chunk in chunks]
    assert last["logprobs"] is None
    theirs_scored = [one["choices"][0] for one in llama.create_completion(prompt, stream=True, **arguments)]  # type: ignore[index]
    assert [kinds(one) for one in scored] == [kinds(one) for one in theirs_scored[:-1]]
    assert "".join(one["text"] for one in scored) == answer["choices"][0]["text"]
    assert [one["logprobs"]["text_offset"][0] for one in scored] == ours["text_offset"]
    assert [one["logprobs"]["tokens"][0] for one in scored] == ours["tokens"]
    assert [one["logprobs"]["token_logprobs"][0] for one in scored] == near(ours["token_logprobs"])


@pytest.mark.real
def test_the_scores_of_an_answer_are_the_same(engine: SpeculativeLM, llama: llama_cpp.Llama) -> None:
    arguments: dict[str, Any] = {"temperature": 0, "logprobs": True, "top_logprobs": 3}
    answer: Any = engine.create_chat_completion(MESSAGES, **arguments)
    theirs: Any = llama.create_chat_completion(MESSAGES, **arguments)  # type: ignore[arg-type]
    assert kinds(answer) == kinds(theirs)
    for one, its in zip(contents(answer), contents(theirs), strict=True):
        assert one["token"] == its["token"]
        assert one["logprob"] == near(its["logprob"])
        assert [top["token"] for top in one["top_logprobs"]] == [top["token"] for top in its["top_logprobs"]]
    chunks: list[Any] = list(engine.create_chat_completion(MESSAGES, stream=True, **arguments))
    streamed = [token for chunk in chunks[1:-1] for token in contents(chunk)]
    assert [token["token"] for token in streamed] == [token["token"] for token in contents(answer)]
    assert kinds(streamed) == kinds(contents(answer))


def test_without_a_number_only_the_tokens_themselves_are_scored(tiny_engine: SpeculativeLM) -> None:
    answer: Any = tiny_engine.create_chat_completion(MESSAGES[1:], max_tokens=5, logprobs=True)
    assert len(contents(answer)) == 5
    for token in contents(answer):
        assert [(top["token"], top["logprob"]) for top in token["top_logprobs"]] == [(token["token"], token["logprob"])]


def contents(answer: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = answer["choices"][0]["logprobs"]["content"]
    return found


def near(expected: Any) -> Any:
    return pytest.approx(expected, abs=2e-3)


@pytest.mark.parametrize("stop", [[], ["b"], ["ab", "\ufffd\ufffd"], ["\x00never"]])
@pytest.mark.parametrize("prompt", ["ababababab", "The text.", "é€😀"])
def test_scored_or_not_and_whole_or_not_the_text_is_one(
    tiny_engine: SpeculativeLM, prompt: str, stop: list[str]
) -> None:
    arguments: dict[str, Any] = {"max_tokens": 60, "seed": 5, "temperature": 1.0, "stop": stop}
    answer: Any = tiny_engine.create_completion(prompt, **arguments)
    for logprobs in (None, 2):
        chunks: list[Any] = list(tiny_engine.create_completion(prompt, stream=True, logprobs=logprobs, **arguments))
        assert text_of(chunks) == answer["choices"][0]["text"]
        assert chunks[-1]["choices"][0]["finish_reason"] == answer["choices"][0]["finish_reason"]
    scored = [chunk for chunk in chunks if chunk["choices"][0]["logprobs"]]
    assert len(scored) == answer["usage"]["completion_tokens"]


# sampling


@pytest.mark.real
def test_a_seed_gives_the_text_again(engine: SpeculativeLM) -> None:
    def text(**arguments: Any) -> str:
        answer: Any = engine.create_completion("Once upon a time", max_tokens=20, **arguments)
        written: str = answer["choices"][0]["text"]
        return written

    seeded = [text(seed=seed) for seed in (1, 2, 3)]
    assert seeded == [text(seed=seed) for seed in (1, 2, 3)]
    assert len({*seeded, text(), text(), text(seed=-1), text(seed=-1)}) == 7
    assert text(seed=1, temperature=0.8, top_k=40, top_p=0.95, min_p=0.05, repeat_penalty=1.0) == seeded[0]


def test_biases_may_have_texts_as_keys(tiny_engine: SpeculativeLM) -> None:
    answers: list[Any] = [
        tiny_engine.create_completion("ab", temperature=0, logit_bias=biases, max_tokens=8)  # type: ignore[arg-type]
        for biases in ({120: 100}, {"120": 100})
    ]
    assert [answer["choices"][0]["text"] for answer in answers] == [tiny.byte_texts()[120] * 8] * 2 == ["x" * 8] * 2


def test_a_negative_top_k_keeps_all(tiny_engine: SpeculativeLM) -> None:
    answers: list[Any] = [tiny_engine("ab", top_k=top_k, seed=3, max_tokens=30) for top_k in (-1, 0)]
    assert answers[0]["choices"] == answers[1]["choices"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_that_can_be_read_only_once_is_echoed_whole(tiny_engine: SpeculativeLM, stream: bool) -> None:
    arguments: dict[str, Any] = {"max_tokens": 2, "temperature": 0, "echo": True, "stream": stream}
    echoes = []
    for prompt in [97, 98, 99], iter([97, 98, 99]), np.array([97, 98, 99]):
        answer: Any = tiny_engine.create_completion(prompt, **arguments)  # type: ignore[arg-type]
        echoes.append(text_of(list(answer)) if stream else answer["choices"][0]["text"])
    assert echoes[0].startswith("abc")
    assert echoes[0] == echoes[1] == echoes[2]


# what is refused


@pytest.mark.parametrize(
    "arguments",
    [
        {"suffix": "end"},
        {"tfs_z": 0.9},
        {"mirostat_mode": 2},
        {"mirostat_tau": 4.0},
        {"mirostat_eta": 0.2},
        {"stopping_criteria": [lambda tokens, logits: True]},
        {"logits_processor": [lambda tokens, logits: logits]},
        {"logits_processor": np.array([1, 2])},
        {"temperature": np.array([0, 1])},
        {"seed": np.array([1, 2])},
        {"grammar": object()},
        {"echo": True, "logprobs": 1},
        {"temperature": -1.0},
        {"top_p": 2.0},
        {"seed": -2},
        {"logit_bias": [1]},
        {"logit_bias": {"a": 1}},
        {"logprobs": -1},
        {"max_tokens": "9"},
        {"stop": [""]},
    ],
    ids=str,
)
@pytest.mark.parametrize("stream", [False, True])
def test_what_a_completion_can_not_do_is_refused_by_name(
    tiny_engine: SpeculativeLM, arguments: dict[str, Any], stream: bool
) -> None:
    with pytest.raises(PromptError, match=next(iter(arguments))):
        tiny_engine.create_completion("ab", stream=stream, **arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        {"functions": [{"name": "f", "parameters": {}}]},
        {"function_call": {"name": "f"}},
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]},
        {"tool_choice": "required"},
        {"response_format": {"type": "json_object"}},
        {"tfs_z": 0.9},
        {"mirostat_mode": 1},
        {"mirostat_tau": 4.0},
        {"mirostat_eta": 0.2},
        {"logits_processor": llama_cpp.LogitsProcessorList([lambda tokens, logits: logits])},
        {"grammar": object()},
        {"top_logprobs": -1, "logprobs": True},
    ],
    ids=str,
)
def test_what_an_answer_can_not_do_is_refused_by_name(tiny_engine: SpeculativeLM, arguments: dict[str, Any]) -> None:
    with pytest.raises(PromptError, match=next(iter(arguments)).removeprefix("top_")):
        tiny_engine.create_chat_completion(MESSAGES[1:], **arguments)


def test_a_prompt_that_is_too_long_is_refused(tiny_engine: SpeculativeLM) -> None:
    with pytest.raises(PromptError, match="257 tokens and the context holds 256"):
        tiny_engine.create_completion("a" * 257)


# streams and the engine


def test_a_stream_that_is_closed_lets_the_engine_go(tiny_engine: SpeculativeLM) -> None:
    for make in (tiny_engine.create_completion, tiny_engine.create_chat_completion):
        prompt: Any = MESSAGES[1:] if make == tiny_engine.create_chat_completion else "ab"
        chunks: Any = make(prompt, stream=True, max_tokens=100)
        next(chunks)
        next(chunks)
        with pytest.raises(BusyError):
            tiny_engine.create_completion("ab")
        chunks.close()
        assert tiny_engine.create_completion("ab")


def test_a_stream_that_is_not_begun_holds_nothing(tiny_engine: SpeculativeLM) -> None:
    chunks = tiny_engine.create_completion("ab", stream=True)
    assert tiny_engine.create_completion("ab")
    assert list(chunks)


def test_a_text_that_closing_cuts_off_is_no_answer(tiny_llama: Path) -> None:
    with SpeculativeLM(tiny_llama, n_ctx=CTX, threads=1) as engine:
        chunks: Any = engine.create_completion("ab", stream=True, max_tokens=100)
        next(chunks)
        engine.close()
        with pytest.raises(ClosedError, match="before the text was complete"):
            list(chunks)
        with pytest.raises(ClosedError):
            engine.create_completion("ab")


# filling in


def test_a_model_that_fills_in_takes_a_suffix(
    tmp_path: Path, tiny_llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_vocabulary = tiny._add_vocabulary

    def with_marks(writer: gguf.GGUFWriter, *arguments: Any) -> None:
        add_vocabulary(writer, *arguments)
        for name, token in ("pre", ord("<")), ("suf", ord("|")), ("mid", ord(">")):
            writer.add_uint32(f"tokenizer.ggml.fim_{name}_token_id", token)

    monkeypatch.setattr(tiny, "_add_vocabulary", with_marks)
    path = tiny.write_model(tmp_path / "fills-in.gguf", adds_bos=True)
    with SpeculativeLM(path, n_ctx=CTX, threads=1) as engine:
        answer: Any = engine.create_completion("abc", "xyz", temperature=0, echo=True)
        plain: Any = engine.create_completion([tiny.BOS, *b"<abc|xyz>"], temperature=0)
        assert answer["choices"][0]["text"] == "abc" + plain["choices"][0]["text"]
        assert answer["usage"] == plain["usage"]
        of_tokens: Any = engine.create_completion(list(b"abc"), "xyz", temperature=0)
        assert of_tokens["choices"] == plain["choices"]
