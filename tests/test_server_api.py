"""The endpoints of the server, on a tiny model."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import httpx
import pytest
import tiny
from prometheus_client.parser import text_string_to_metric_families
from serving import MESSAGES, Running, events, ready

from lcspec import SamplingParams, SpeculativeLM
from lcspec.batching import BatchingEngine, Metrics
from lcspec.server.metrics import ServerMetrics
from lcspec.server.responses import ChatResponse, CompletionResponse, ModelList, ServedModel
from lcspec.stats import DrafterStats

CTX = 512
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
FIXED = {"temperature": 0, "max_tokens": 12}


@pytest.fixture(scope="module")
def server(tiny_llama: Path) -> Iterator[Running]:
    with ready(lambda: BatchingEngine(tiny_llama, n_ctx=CTX, threads=1, exact=True)) as one:
        yield one


@pytest.fixture(scope="module")
def client(server: Running) -> Iterator[httpx.Client]:
    with server.client() as one:
        yield one


@pytest.fixture(scope="module")
def alone(tiny_llama: Path) -> Iterator[SpeculativeLM]:
    with SpeculativeLM(tiny_llama, drafter="none", n_ctx=CTX, threads=1, exact=True) as one:
        yield one


def ask(client: httpx.Client, path: str, **body: Any) -> dict[str, Any]:
    """Post a request, and check that the answer has the shape that the OpenAPI document says."""
    response = client.post(path, json=body)
    assert response.status_code == 200, response.text
    kind = ChatResponse if path == CHAT else CompletionResponse
    kind.model_validate_json(response.content)
    return dict(response.json())


def chat(client: httpx.Client, **body: Any) -> dict[str, Any]:
    return ask(client, CHAT, **{"messages": MESSAGES, **FIXED, **body})


def complete(client: httpx.Client, **body: Any) -> dict[str, Any]:
    return ask(client, TEXT, **{"prompt": "abc", **FIXED, **body})


def stream(client: httpx.Client, path: str, **body: Any) -> list[Any]:
    prompt = {"messages": MESSAGES} if path == CHAT else {"prompt": "abc"}
    response = client.post(path, json={**prompt, **FIXED, **body, "stream": True})
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    return events(response.text)


def contents(answer: dict[str, Any]) -> list[str]:
    return [choice["message"]["content"] for choice in answer["choices"]]


def texts(answer: dict[str, Any]) -> list[str]:
    return [choice["text"] for choice in answer["choices"]]


def test_an_answer_is_the_text_of_plain_decoding(client: httpx.Client, alone: SpeculativeLM) -> None:
    answer = chat(client, max_tokens=60)
    expected = alone.chat(MESSAGES, max_tokens=60)
    assert contents(answer) == [expected.text]
    assert answer["model"] == "tiny"
    assert answer["object"] == "chat.completion"
    assert answer["id"].startswith("chatcmpl-")
    assert abs(answer["created"] - time.time()) < 1000
    usage = answer["usage"]
    assert usage["completion_tokens"] == len(expected.tokens)
    assert usage["prompt_tokens"] == expected.stats.prompt_tokens
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


def test_a_text_is_that_of_plain_decoding(client: httpx.Client, alone: SpeculativeLM) -> None:
    answer = complete(client, max_tokens=60)
    assert texts(answer) == [alone.generate("abc", max_tokens=60).text]
    assert answer["object"] == "text_completion"
    assert answer["id"].startswith("cmpl-")


@pytest.mark.parametrize(
    "sampling",
    [
        {"temperature": 0.9, "seed": 5},
        {"temperature": 0.9, "seed": 5, "top_k": 3},
        {"temperature": 0.9, "seed": 5, "top_p": 0.3, "min_p": 0.2},
        {"temperature": 1.5, "seed": 6, "repeat_penalty": 1.5},
        {"temperature": 0, "frequency_penalty": 1.5},
        {"temperature": 0, "presence_penalty": 2},
        {"seed": 7},
    ],
)
def test_samplers_are_those_of_the_library(
    client: httpx.Client, alone: SpeculativeLM, sampling: dict[str, Any]
) -> None:
    answer = complete(client, **{"max_tokens": 40, "temperature": None, **sampling})
    assert texts(answer) == [alone.generate("abc", max_tokens=40, sampling=SamplingParams(**sampling)).text]


def test_seeds_may_be_negative_and_minus_one_draws_one(client: httpx.Client) -> None:
    first, again = (texts(complete(client, temperature=1.0, seed=-7, max_tokens=40)) for _ in range(2))
    assert first == again
    drawn = {texts(complete(client, temperature=1.0, seed=-1, max_tokens=40))[0] for _ in range(4)}
    assert len(drawn) > 1


def test_several_texts_have_several_seeds(client: httpx.Client) -> None:
    answer = chat(client, n=3, temperature=1.0, seed=3, max_tokens=30)
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
    assert len(set(contents(answer))) == 3
    assert contents(chat(client, temperature=1.0, seed=4, max_tokens=30)) == contents(answer)[1:2]
    assert answer["usage"]["completion_tokens"] == 90
    assert answer["usage"]["prompt_tokens"] == chat(client)["usage"]["prompt_tokens"]


def test_a_text_ends_at_stop_strings(client: httpx.Client) -> None:
    (plain,) = texts(complete(client, max_tokens=40, logit_bias={"97": 100, "98": 99.5}, temperature=1, seed=1))
    assert set(plain) == {"a", "b"}
    end = plain[10:13]
    for stop in end, ["never", end], [end, "no", "nor", "not", "neither"]:
        answer = complete(client, max_tokens=40, logit_bias={"97": 100, "98": 99.5}, temperature=1, seed=1, stop=stop)
        assert texts(answer) == [plain[: plain.index(end)]]
        assert answer["choices"][0]["finish_reason"] == "stop"


def test_a_bias_of_100_forces_a_token_and_of_minus_100_forbids_it(client: httpx.Client) -> None:
    assert texts(complete(client, logit_bias={"120": 100})) == ["x" * 12]
    assert "x" not in texts(complete(client, logit_bias={"120": -100}, max_tokens=100))[0]


def test_max_completion_tokens_comes_before_max_tokens(client: httpx.Client) -> None:
    def length(**limits: Any) -> int:
        answer = chat(client, **limits)
        assert answer["choices"][0]["finish_reason"] == "length"
        return int(answer["usage"]["completion_tokens"])

    assert length(max_tokens=5) == 5
    assert length(max_tokens=None, max_completion_tokens=7) == 7
    assert length(max_tokens=5, max_completion_tokens=7) == 7
    n_prompt = chat(client)["usage"]["prompt_tokens"]
    assert length(max_tokens=None) == length(max_tokens=-1) == CTX - n_prompt


def test_a_text_without_a_length_has_16_tokens_as_with_openai(client: httpx.Client) -> None:
    assert complete(client, max_tokens=None)["usage"]["completion_tokens"] == 16
    assert complete(client, max_tokens=-1)["usage"]["total_tokens"] == CTX


def test_what_does_not_matter_is_ignored(client: httpx.Client) -> None:
    answer = chat(
        client,
        model="gpt-4o",
        user="me",
        metadata={"a": "b"},
        store=True,
        service_tier="auto",
        parallel_tool_calls=True,
        reasoning_effort="low",
        response_format={"type": "text"},
        tools=[],
        tool_choice="auto",
        modalities=["text"],
        cache_prompt=True,
    )
    assert contents(answer) == contents(chat(client))
    assert answer["model"] == "tiny"


def test_tools_that_may_not_be_used_are_ignored(client: httpx.Client) -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    assert contents(chat(client, tools=tools, tool_choice="none")) == contents(chat(client))


def test_roles_and_parts(client: httpx.Client, alone: SpeculativeLM) -> None:
    parts = [{"type": "text", "text": "Name"}, {"type": "text", "text": "colors."}]
    answer = chat(
        client,
        messages=[
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": "Hello", "name": "me"},
            {"role": "assistant", "content": "Hi."},
            {"role": "user", "content": parts},
        ],
    )
    expected = alone.chat(
        [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": "Hi."},
            {"role": "user", "content": "Name\ncolors."},
        ],
        max_tokens=12,
    )
    assert contents(answer) == [expected.text]


def test_prompts_are_texts_or_tokens_or_lists_of_them(client: httpx.Client) -> None:
    tokens = list(b"abc")
    one, other = texts(complete(client)), texts(complete(client, prompt="xyz"))
    assert texts(complete(client, prompt=tokens)) == one
    assert texts(complete(client, prompt=["abc"])) == one
    assert texts(complete(client, prompt=["abc", "xyz"])) == one + other
    answer = complete(client, prompt=[tokens, list(b"xyz")], n=2)
    assert texts(answer) == one * 2 + other * 2
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
    assert answer["usage"]["prompt_tokens"] == 6


def test_an_echo_begins_with_the_prompt(client: httpx.Client) -> None:
    (plain,) = texts(complete(client))
    assert texts(complete(client, echo=True)) == ["abc" + plain]
    assert texts(complete(client, echo=True, prompt=[97, 98, 99])) == ["abc" + plain]
    chunks = stream(client, TEXT, echo=True)
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == "abc" + plain


def test_a_suffix_is_for_models_that_fill_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_vocabulary = tiny._add_vocabulary

    def with_marks(writer: gguf.GGUFWriter, *arguments: Any) -> None:
        add_vocabulary(writer, *arguments)
        for name, token in ("pre", ord("<")), ("suf", ord("|")), ("mid", ord(">")):
            writer.add_uint32(f"tokenizer.ggml.fim_{name}_token_id", token)

    monkeypatch.setattr(tiny, "_add_vocabulary", with_marks)
    path = tiny.write_model(tmp_path / "fills-in.gguf")
    with ready(lambda: BatchingEngine(path, n_ctx=CTX, threads=1, exact=True)) as server, server.client() as client:
        expected = texts(complete(client, prompt="<abc|xyz>"))
        assert texts(complete(client, prompt="abc", suffix="xyz")) == expected
        assert texts(complete(client, prompt=[97, 98, 99], suffix="xyz")) == expected


def test_no_tokens_are_a_text_too(client: httpx.Client) -> None:
    answer = complete(client, max_tokens=0)
    assert (texts(answer), answer["choices"][0]["finish_reason"]) == ([""], "length")
    assert contents(chat(client, max_tokens=0)) == [""]


def test_best_of_as_many_as_are_wanted_is_nothing_special(client: httpx.Client) -> None:
    assert texts(complete(client, best_of=1)) == texts(complete(client))


# streams


def test_a_stream_has_the_same_text(client: httpx.Client) -> None:
    first, *chunks, last = stream(client, CHAT)
    assert first["choices"] == [{"index": 0, "delta": {"role": "assistant"}, "logprobs": None, "finish_reason": None}]
    assert "".join(chunk["choices"][0]["delta"]["content"] for chunk in chunks) == contents(chat(client))[0]
    assert last["choices"][0]["delta"] == {}
    assert last["choices"][0]["finish_reason"] == "length"
    assert {chunk["object"] for chunk in (first, *chunks, last)} == {"chat.completion.chunk"}
    assert len({chunk["id"] for chunk in (first, *chunks, last)}) == 1
    assert "usage" not in first


def test_a_stream_of_a_text_has_the_same_text(client: httpx.Client) -> None:
    *chunks, last = stream(client, TEXT)
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == texts(complete(client))[0]
    assert last["choices"][0]["finish_reason"] == "length"
    assert last["timings"]["predicted_n"] == 12


def test_a_stream_of_several_texts_says_which_they_are(client: httpx.Client) -> None:
    chunks = stream(client, CHAT, n=3, temperature=1.0, seed=3)
    written = ["", "", ""]
    for chunk in chunks:
        (choice,) = chunk["choices"]
        written[choice["index"]] += choice["delta"].get("content", "")
    assert written == contents(chat(client, n=3, temperature=1.0, seed=3))


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_a_stream_ends_with_the_usage_if_that_is_wanted(client: httpx.Client, path: str) -> None:
    *chunks, last = stream(client, path, stream_options={"include_usage": True})
    assert all(chunk["usage"] is None for chunk in chunks)
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 12
    assert last["timings"]["predicted_n"] == 12
    assert "timings" not in chunks[-1]


# scores


def test_scores_of_an_answer(client: httpx.Client, alone: SpeculativeLM) -> None:
    expected = alone.chat(MESSAGES, max_tokens=12, logprobs=2)
    answer = chat(client, logprobs=True, top_logprobs=2)
    scores = answer["choices"][0]["logprobs"]["content"]
    assert [score["logprob"] for score in scores] == [one.logprob for one in expected.logprobs]
    for score, one in zip(scores, expected.logprobs, strict=True):
        assert bytes(score["bytes"]) == bytes([one.token]) or one.token >= 256
        assert [other["logprob"] for other in score["top_logprobs"]] == [other for _, other in one.top]
    alone_scores = chat(client, logprobs=True)["choices"][0]["logprobs"]["content"]
    assert [score["top_logprobs"] for score in alone_scores] == [[]] * 12
    assert answer["choices"][0]["logprobs"]["refusal"] is None


def test_scores_of_a_text(client: httpx.Client) -> None:
    scores = complete(client, logprobs=2, logit_bias={"120": 100})["choices"][0]["logprobs"]
    assert scores["tokens"] == ["x"] * 12
    assert scores["text_offset"] == list(range(3, 15))
    assert all(2 <= len(top) <= 3 and "x" in top for top in scores["top_logprobs"])


def test_scores_in_a_stream_come_with_their_tokens(client: httpx.Client) -> None:
    chunks = stream(client, CHAT, logprobs=True, top_logprobs=1)[1:-1]
    streamed = [score for chunk in chunks for score in (chunk["choices"][0]["logprobs"] or {"content": []})["content"]]
    assert streamed == chat(client, logprobs=True, top_logprobs=1)["choices"][0]["logprobs"]["content"]
    chunks = stream(client, TEXT, logprobs=1)
    streamed = [score for chunk in chunks for score in (chunk["choices"][0]["logprobs"] or {"tokens": []})["tokens"]]
    assert streamed == complete(client, logprobs=1)["choices"][0]["logprobs"]["tokens"]


# what it took


def test_timings_are_those_of_llama_server(client: httpx.Client) -> None:
    timings = complete(client, prompt="abc" * 20, max_tokens=60, logit_bias={"97": 100})["timings"]
    assert timings["predicted_n"] == 60
    assert timings["prompt_n"] + timings["cache_n"] == 60
    assert timings["predicted_per_second"] == pytest.approx(60 / timings["predicted_ms"] * 1000)
    assert timings["draft_n"] >= timings["draft_n_accepted"] >= 0


def test_a_prompt_that_was_evaluated_is_not_evaluated_again(client: httpx.Client) -> None:
    prompt = "a prompt of its own " * 5
    assert complete(client, prompt=prompt)["usage"]["prompt_tokens_details"]["cached_tokens"] < 10
    assert complete(client, prompt=prompt)["usage"]["prompt_tokens_details"]["cached_tokens"] > 90


@pytest.mark.parametrize("in_parts", [False, True])
def test_a_prediction_does_not_change_the_text(client: httpx.Client, in_parts: bool) -> None:
    bias = {"logit_bias": {"97": 100, "98": 99.9}, "temperature": 1.0, "seed": 2, "max_tokens": 60}
    (expected,) = contents(chat(client, **bias))
    wrong = expected[:30] + "c" + expected[31:]
    for text in expected, wrong, "nothing like it", "":
        content = [{"type": "text", "text": text[:7]}, {"type": "text", "text": text[7:]}] if in_parts else text
        answer = chat(client, **bias, prediction={"type": "content", "content": content})
        assert contents(answer) == [expected]
        details = answer["usage"]["completion_tokens_details"]
        assert 0 <= details["accepted_prediction_tokens"] <= len(text)
        assert 0 <= details["rejected_prediction_tokens"] <= len(text)


# the others


def test_a_prediction_beyond_the_context_is_cut_to_it(client: httpx.Client) -> None:
    body = {"prompt": "abc", "max_tokens": 2, "prediction": {"type": "content", "content": "x" * 2000}}
    details = client.post(TEXT, json=body).json()["usage"]["completion_tokens_details"]
    assert 0 < details["rejected_prediction_tokens"] <= CTX


def test_the_model_is_listed(client: httpx.Client) -> None:
    response = client.get("/v1/models")
    (model,) = ModelList.model_validate_json(response.content).data
    assert model.id == "tiny"
    assert model.meta["n_ctx"] == CTX
    assert model.meta["n_vocab"] == tiny.N_VOCAB
    assert ServedModel.model_validate_json(client.get("/v1/models/tiny").content) == model
    assert client.get("/v1/models/other/name").json()["error"]["code"] == "model_not_found"


def test_it_is_healthy(client: httpx.Client) -> None:
    response = client.get("/health")
    assert (response.status_code, response.json()) == (200, {"status": "ok"})


def test_metrics_count(server: Running, client: httpx.Client) -> None:
    names = ("lcspec_tokens_total", "lcspec_requests_total", "lcspec_first_token_seconds_count", "lcspec_passes_total")
    before = [server.figure(name) for name in names]
    requests = server.figure("lcspec_http_requests_total")
    complete(client, max_tokens=20)
    client.post(CHAT, json={})
    gained = [server.figure(name) - one for name, one in zip(names, before, strict=True)]
    assert gained[:3] == [20, 1, 1]
    assert 0 < gained[3] <= 20
    text = client.get("/metrics").text
    assert 'lcspec_http_requests_total{path="/v1/chat/completions",status="400"}' in text
    assert server.figure("lcspec_http_requests_total") >= requests + 2
    for name in ("requests_queued", "requests_active", "cells", "sequences", "up", "cache_hits_total"):
        assert f"\nlcspec_{name} " in text


def test_metrics_show_what_drafts_brought() -> None:
    of_engine = Metrics(drafters={"lookup": DrafterStats(drafts=2, drafted=8, accepted=6)}, is_up=False)
    text = ServerMetrics(lambda: of_engine).text().decode()
    assert 'lcspec_draft_tokens_total{drafter="lookup"} 8.0\n' in text
    assert 'lcspec_draft_tokens_accepted_total{drafter="lookup"} 6.0\n' in text
    assert 'lcspec_acceptance_rate{drafter="lookup"} 0.75\n' in text
    assert "\nlcspec_up 0.0\n" in text


def test_metrics_are_what_prometheus_reads(client: httpx.Client) -> None:
    response = client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=")
    families = {family.name: family for family in text_string_to_metric_families(response.text)}
    assert families["lcspec_first_token_seconds"].type == "histogram"
    assert families["lcspec_passes"].type == "counter"
    assert all(family.documentation for family in families.values() if not family.name.endswith("_created"))
