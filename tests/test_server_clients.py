"""Programs of others that talk to the server: OpenAI's clients for Python and for Node, and `llm`."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from platformdirs import user_cache_path
from serving import PATIENCE, Running, ready

from lcspec import SpeculativeLM
from lcspec.batching import BatchingEngine
from lcspec.server.service import Settings

pytestmark = pytest.mark.real

CTX = 1024
KEY = "sk-of-this-test"
MODEL = "smollm2-135m"
COLORS: list[Any] = [{"role": "user", "content": "Name three colors."}]
FRANCE = "The capital of France is"
NODE_CLIENT = "openai@6.9.1"


@pytest.fixture(scope="module")
def server(smollm2: Path) -> Iterator[Running]:
    settings = Settings(name=MODEL, key=KEY)
    with ready(lambda: BatchingEngine(smollm2, n_ctx=CTX, threads=1, exact=True), settings) as one:
        yield one


@pytest.fixture(scope="module")
def client(server: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0, timeout=PATIENCE) as one:
        yield one


@pytest.fixture(scope="module")
def alone(smollm2: Path) -> Iterator[SpeculativeLM]:
    with SpeculativeLM(smollm2, drafter="none", n_ctx=CTX, threads=1, exact=True) as one:
        yield one


@pytest.fixture(scope="module")
def colors(alone: SpeculativeLM) -> str:
    return alone.chat(COLORS, max_tokens=40).text


# OpenAI's client for Python


def test_a_chat_with_every_option(client: openai.OpenAI, colors: str) -> None:
    answer = client.chat.completions.create(
        model="gpt-4o",
        messages=COLORS,
        temperature=0,
        top_p=1,
        n=2,
        stop=["\n\n\n", "never"],
        seed=7,
        max_tokens=40,
        max_completion_tokens=40,
        logprobs=True,
        top_logprobs=3,
        logit_bias={"5": -1},
        frequency_penalty=0,
        presence_penalty=0,
        user="me",
        metadata={"of": "this test"},
        store=False,
        service_tier="auto",
        parallel_tool_calls=False,
        response_format={"type": "text"},
        prediction={"type": "content", "content": colors},
        extra_body={"top_k": 40, "min_p": 0.05, "repeat_penalty": 1.0},
    )
    assert [choice.message.content for choice in answer.choices] == [colors, colors]
    assert [choice.finish_reason for choice in answer.choices] == ["stop", "stop"]
    assert answer.model == MODEL
    scores = answer.choices[0].logprobs
    assert scores is not None
    assert scores.content is not None
    assert b"".join(bytes(one.bytes or []) for one in scores.content).decode() == colors
    assert all(one.logprob <= 0 and len(one.top_logprobs) == 3 for one in scores.content)
    usage = answer.usage
    assert usage is not None
    assert usage.completion_tokens == 2 * len(scores.content)
    assert usage.prompt_tokens_details is not None
    assert usage.completion_tokens_details is not None
    accepted = usage.completion_tokens_details.accepted_prediction_tokens
    assert accepted is not None
    assert accepted > 0
    timings = answer.model_extra["timings"]  # type: ignore[index]
    assert timings["draft_n"] >= timings["draft_n_accepted"] >= 0


def test_a_chat_as_a_stream(client: openai.OpenAI, colors: str) -> None:
    stream = client.chat.completions.create(
        model=MODEL,
        messages=COLORS,
        temperature=0,
        max_tokens=40,
        stream=True,
        stream_options={"include_usage": True},
    )
    *chunks, last = stream
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == colors
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert last.usage is not None
    assert last.usage.completion_tokens > 0


def test_the_helper_for_streams(client: openai.OpenAI, colors: str) -> None:
    with client.chat.completions.stream(model=MODEL, messages=COLORS, temperature=0, max_tokens=40) as stream:
        deltas = [event.delta for event in stream if event.type == "content.delta"]
        answer = stream.get_final_completion()
    assert "".join(deltas) == colors == answer.choices[0].message.content


def test_asynchronous_clients_at_once(server: Running, colors: str) -> None:
    async def one(client: openai.AsyncOpenAI, stream: bool) -> str:
        options: Any = {"model": MODEL, "messages": COLORS, "temperature": 0, "max_tokens": 40}
        if not stream:
            answer = await client.chat.completions.create(**options)
            return str(answer.choices[0].message.content)
        chunks = await client.chat.completions.create(**options, stream=True)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in chunks])

    async def all_of_them() -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0) as client:
            return await asyncio.gather(*(one(client, i % 2 == 0) for i in range(6)))

    assert asyncio.run(all_of_them()) == [colors] * 6


def test_a_completion_with_every_option(client: openai.OpenAI, alone: SpeculativeLM) -> None:
    expected = alone.generate(FRANCE, max_tokens=8)
    answer = client.completions.create(
        model=MODEL,
        prompt=[FRANCE, FRANCE],
        temperature=0,
        top_p=1,
        max_tokens=8,
        n=1,
        best_of=1,
        echo=False,
        stop="\n\n\n",
        seed=3,
        logprobs=2,
        logit_bias={"5": -1},
        frequency_penalty=0,
        presence_penalty=0,
        user="me",
        extra_body={"top_k": 1},
    )
    assert [choice.text for choice in answer.choices] == [expected.text] * 2
    scores = answer.choices[1].logprobs
    assert scores is not None
    assert "".join(scores.tokens or []) == expected.text
    assert scores.token_logprobs == [one.logprob for one in expected.logprobs] or not expected.logprobs
    tokens = alone.target.tokenize(FRANCE)
    assert (
        client.completions.create(model=MODEL, prompt=tokens, temperature=0, max_tokens=8).choices[0].text
        == expected.text
    )
    assert (
        client.completions.create(model=MODEL, prompt=FRANCE, temperature=0, max_tokens=8, echo=True).choices[0].text
        == FRANCE + expected.text
    )


def test_a_completion_as_a_stream(client: openai.OpenAI, alone: SpeculativeLM) -> None:
    stream = client.completions.create(
        model=MODEL, prompt=FRANCE, temperature=0, max_tokens=8, stream=True, stream_options={"include_usage": True}
    )
    *chunks, last = stream
    assert "".join(chunk.choices[0].text for chunk in chunks) == alone.generate(FRANCE, max_tokens=8).text
    assert last.usage is not None
    assert last.usage.total_tokens == last.usage.prompt_tokens + 8


def test_a_seed_gives_a_text_again(client: openai.OpenAI) -> None:
    def text(seed: int) -> str:
        answer = client.completions.create(model=MODEL, prompt="Once", temperature=1.2, seed=seed, max_tokens=20)
        return answer.choices[0].text

    assert text(5) == text(5) != text(6)


def test_penalties_and_biases_change_a_text(client: openai.OpenAI) -> None:
    def text(**options: Any) -> str:
        prompt = "one two one two one two"
        answer = client.completions.create(model=MODEL, prompt=prompt, temperature=0, max_tokens=20, **options)
        return answer.choices[0].text

    plain = text()
    assert text(frequency_penalty=2) != plain
    assert text(presence_penalty=2) != plain
    assert text(logit_bias={"28": 100}) == "," * 20


def test_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).owned_by == "lcspec"
    with pytest.raises(openai.NotFoundError, match="there is no model of that name"):
        client.models.retrieve("gpt-4o")


def test_errors_are_those_of_the_client(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="tools is not supported") as caught:
        client.chat.completions.create(
            model=MODEL, messages=COLORS, tools=[{"type": "function", "function": {"name": "f"}}]
        )
    assert caught.value.param == "tools"
    assert caught.value.code == "unsupported_parameter"
    with pytest.raises(openai.BadRequestError, match="1,024") as caught:
        client.completions.create(model=MODEL, prompt="a b " * 1000)
    assert caught.value.code == "context_length_exceeded"
    with pytest.raises(openai.AuthenticationError):
        client.with_options(api_key="another").models.list()


def test_leaving_a_stream_frees_its_place(server: Running, client: openai.OpenAI) -> None:
    from serving import wait_until

    stream = client.completions.create(model=MODEL, prompt="1 2 3 4", temperature=0, max_tokens=900, stream=True)
    next(iter(stream))
    stream.close()
    wait_until(lambda: server.service.engine.metrics().active == 0)


# llm


def test_the_llm_tool(server: Running, colors: str, tmp_path: Path) -> None:
    shared = f"  model_name: {MODEL}\n  api_base: {server.url}/v1\n  api_key_name: local\n"
    models = f"- model_id: local\n{shared}- model_id: text\n{shared}  completion: true\n"
    (tmp_path / "extra-openai-models.yaml").write_text(models)
    environment = {**os.environ, "LLM_USER_PATH": str(tmp_path), "NO_PROXY": "127.0.0.1"}

    def llm(*arguments: str) -> str:
        done = subprocess.run(
            [str(Path(sys.executable).with_name("llm")), *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    (tmp_path / "keys.json").write_text(json.dumps({"local": KEY}))
    limits = ("-o", "temperature", "0", "-o", "max_tokens", "40")
    assert llm("-m", "local", *limits, "Name three colors.") == colors + "\n"
    assert "Dog" in llm("-c", *limits, "And three animals.")
    assert llm("-m", "text", "--no-stream", *limits, FRANCE).strip()


# OpenAI's client for Node

SCRIPT = """
import OpenAI from "openai";
const [baseURL, apiKey] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
const messages = [{ role: "user", content: "Name three colors." }];
const shared = { model: "any", messages, temperature: 0, max_tokens: 40 };
const whole = await client.chat.completions.create({
  ...shared, n: 2, seed: 1, logprobs: true, top_logprobs: 2, stop: ["never"], user: "me",
});
let streamed = "", usage = null;
for await (const chunk of await client.chat.completions.create({
  ...shared, stream: true, stream_options: { include_usage: true },
})) {
  streamed += chunk.choices[0]?.delta?.content ?? "";
  usage = chunk.usage ?? usage;
}
const completion = await client.completions.create({
  model: "any", prompt: "The capital of France is", temperature: 0, max_tokens: 4, logprobs: 1,
});
const models = [];
for await (const model of client.models.list()) models.push(model.id);
let error = null;
try {
  await client.chat.completions.create({ ...shared, max_tokens: "many" });
} catch (caught) {
  error = { kind: caught.constructor.name, status: caught.status, param: caught.param };
}
const controller = new AbortController();
let left = false;
try {
  const long = await client.completions.create(
    { model: "any", prompt: "1 2 3", max_tokens: 900, stream: true }, { signal: controller.signal },
  );
  for await (const _ of long) controller.abort();
  left = true;
} catch (caught) { left = caught.constructor.name === "APIUserAbortError"; }
console.log(JSON.stringify({
  whole: whole.choices.map((choice) => choice.message.content), streamed, usage, models, error, left,
  scored: whole.choices[0].logprobs.content.length, completion: completion.choices[0].text,
}));
"""


@pytest.fixture(scope="module")
def node_folder() -> Path:
    """A folder with the client, which stays in the user's cache for the next time."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("Node is not installed")
    folder = user_cache_path("lcspec-tests") / "node"
    if not (folder / "node_modules" / "openai").exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text('{"private": true, "type": "module"}')
        command = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", NODE_CLIENT]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=180)
        if done.returncode:
            pytest.skip(f"npm can't install {NODE_CLIENT}: {done.stderr.strip().splitlines()[:1]}")
    return folder


def test_the_node_client(server: Running, colors: str, alone: SpeculativeLM, node_folder: Path) -> None:
    script = node_folder / "ask.mjs"
    script.write_text(SCRIPT)
    done = subprocess.run(
        ["node", str(script), f"{server.url}/v1", KEY],
        cwd=node_folder,
        env={**os.environ, "NO_PROXY": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["whole"] == [colors, colors]
    assert said["streamed"] == colors
    assert said["usage"]["completion_tokens"] == said["scored"]
    assert said["completion"] == alone.generate(FRANCE, max_tokens=4).text
    assert said["models"] == [MODEL]
    assert said["error"] == {"kind": "BadRequestError", "status": 400, "param": "max_tokens"}
    assert said["left"] is True
