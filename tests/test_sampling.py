"""What `distribution` makes of logits, against llama.cpp's own samplers.

llama.cpp adds up in single precision. Where a cut falls nearer to a token than such sums are exact (a close call, by
the naive reference below), that token may be in or out; everywhere else the tokens that are left have to be the same.
"""

import copy
import ctypes
import dataclasses
import math
import pickle
from fractions import Fraction
from typing import Any

import llama_cpp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lcspec import GREEDY, EvaluationError, PromptError, SamplingParams
from lcspec.drafters import Draft
from lcspec.drafters.base import NO_DRAFT
from lcspec.rules import CoupledRule
from lcspec.sampling import Distribution, distribution

OFF: dict[str, Any] = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
DATA = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])
MIN_KEEP = 0  # the default of llama.cpp's programs


def apply(logits: np.ndarray, history: list[int], *samplers: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the tokens and logits that llama.cpp's samplers leave, the latter perhaps -inf."""
    chain = llama_cpp.llama_sampler_chain_init(llama_cpp.llama_sampler_chain_default_params())
    for sampler in samplers:
        llama_cpp.llama_sampler_chain_add(chain, sampler)
    for token in history:
        llama_cpp.llama_sampler_accept(chain, token)
    data = np.zeros(logits.size, dtype=DATA)
    data["id"], data["logit"] = np.arange(logits.size), logits
    pointer = data.ctypes.data_as(llama_cpp.llama_token_data_p)
    array = llama_cpp.llama_token_data_array(pointer, data.size, -1, False)
    llama_cpp.llama_sampler_apply(chain, ctypes.byref(array))
    left = np.frombuffer(ctypes.string_at(array.data, array.size * DATA.itemsize), dtype=DATA)
    llama_cpp.llama_sampler_free(chain)
    return left["id"].astype(np.int64), left["logit"]


def changes(params: SamplingParams, n_vocab: int, history: list[int]) -> list[Any]:
    """Return llama.cpp's samplers that change logits: biases and penalties."""
    biases = (llama_cpp.llama_logit_bias * len(params.logit_bias))(*params.logit_bias.items())
    recent = params.penalty_last_n if params.penalty_last_n >= 0 else len(history)  # as llama.cpp's programs do
    penalties = (params.repeat_penalty, params.frequency_penalty, params.presence_penalty)
    return [
        llama_cpp.llama_sampler_init_logit_bias(n_vocab, len(biases), biases),
        llama_cpp.llama_sampler_init_penalties(n_vocab, recent, *penalties),
    ]


def by_llama_cpp(logits: np.ndarray, params: SamplingParams, history: list[int]) -> Distribution:
    """Return the distribution that llama.cpp samples from."""
    tokens, left = apply(
        logits,
        history,
        *changes(params, logits.size, history),
        llama_cpp.llama_sampler_init_top_k(params.top_k),
        llama_cpp.llama_sampler_init_typical(params.typical_p, MIN_KEEP),
        llama_cpp.llama_sampler_init_top_p(params.top_p, MIN_KEEP),
        llama_cpp.llama_sampler_init_min_p(params.min_p, MIN_KEEP),
        llama_cpp.llama_sampler_init_temp(params.temperature),
    )
    possible = left > -np.inf
    return Distribution(tokens[possible], log_softmax(left[possible].astype(np.float64)))


def log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max()
    return shifted - np.log(np.exp(shifted).sum())


def rounding(logits: np.ndarray) -> float:
    """Return how far from the exact sums of probabilities those in single precision are, and a millionth."""
    exponentials = np.exp(logits - logits.max())
    ordered = np.sort(exponentials)[::-1]
    single = ordered.astype(np.float32)
    totals = [float(np.cumsum(values.astype(np.float32))[-1]) for values in (exponentials, ordered)]
    sums = np.cumsum(ordered) / ordered.sum()
    return 1e-6 + 2 * max(float(np.abs(np.cumsum(single) / total - sums).max()) for total in totals)


def is_close_call(logits: np.ndarray, params: SamplingParams, history: list[int]) -> bool:
    """Tell whether rounding can decide which tokens are left."""
    changed = apply(logits, history, *changes(params, logits.size, history))[1].astype(np.float64)
    left = np.sort(changed[changed > -np.inf])[::-1]
    margins = []
    if 0 < params.top_k < left.size:
        margins.append((left[params.top_k - 1] - left[params.top_k]) / (1e-6 * (1 + abs(left[params.top_k]))))
        left = left[: params.top_k]
    if params.typical_p < 1:
        information = -log_softmax(left)
        probabilities = np.exp(-information)
        distance = np.abs(information - probabilities @ information)
        nearest = np.argsort(distance)
        sums = np.cumsum(probabilities[nearest])
        n = int(np.searchsorted(sums, params.typical_p, side="right")) + 1
        margins.append(np.abs(sums - params.typical_p).min() / rounding(left))
        margins += list(np.diff(distance[nearest[: n + 1]])[-1:] / (10 * rounding(left)))
        left = np.sort(left[nearest[:n]])[::-1]
    if params.top_p < 1:
        sums = np.cumsum(np.exp(log_softmax(left)))
        margins.append(np.abs(sums - params.top_p).min() / rounding(left))
        n = int(np.searchsorted(sums, params.top_p)) + 1
        margins += list(-np.diff(left[: n + 1])[-1:] / 1e-6)
        left = left[:n]
    if params.min_p > 0:
        behind = left[1:] - left[0] - math.log(params.min_p)
        margins.append(np.abs(behind).min(initial=np.inf) / (1e-6 * (1 + np.abs(left).max())))
    return min(margins, default=math.inf) < 1


def same(logits: np.ndarray, params: SamplingParams, history: list[int]) -> bool:
    """Compare with llama.cpp; tell whether exactly, that is, without a close call."""
    ours, theirs = distribution(logits, params, history), by_llama_cpp(logits, params, history)
    assert np.exp(ours.log_probs).sum() == pytest.approx(1, abs=1e-6)
    assert np.unique(ours.tokens).size == ours.tokens.size
    p, q = np.zeros(logits.size), np.zeros(logits.size)
    p[ours.tokens], q[theirs.tokens] = np.exp(ours.log_probs), np.exp(theirs.log_probs)
    if is_close_call(logits, params, history):
        differ = np.setxor1d(ours.tokens, theirs.tokens)
        assert differ.size <= 1 or p[differ].sum() + q[differ].sum() < 1e-3
        return False
    assert np.array_equal(np.sort(ours.tokens), np.sort(theirs.tokens))
    assert np.abs(p - q).max() < 1e-5
    return True


def random_logits(random: np.random.Generator, n_vocab: int, scale: float) -> np.ndarray:
    """Return logits no two of which are equal."""
    values = np.unique((scale * random.normal(size=2 * n_vocab)).astype(np.float32))
    return random.permutation(values)[:n_vocab]


def random_params(random: np.random.Generator, n_vocab: int, scale: float) -> SamplingParams:
    """Return parameters each of which is off in a third of all cases or more."""

    def either(off: float, on: float) -> float:
        return on if random.random() < 0.6 else off

    biases = {int(token): float(random.normal(scale=3)) for token in random.integers(n_vocab, size=random.integers(4))}
    # a probability that is 0 in single precision makes llama.cpp's entropy a NaN
    typical_p = either(1.0, random.random()) if scale < 5 else 1.0
    top_k = int(either(0, random.integers(1, 101)))
    if typical_p < 1 and n_vocab > 1000:
        top_k = int(random.integers(1, 101))  # see `test_typical_p_of_a_long_vocabulary`
    elif typical_p == 1.0 and random.random() < 0.3:
        biases[int(random.integers(n_vocab))] = -math.inf
    return SamplingParams(
        temperature=either(1.0, random.uniform(0.1, 2)) if random.random() < 0.95 else 0.0,
        top_k=top_k,
        typical_p=typical_p,
        top_p=either(1.0, random.random()),
        min_p=either(0.0, 0.3 * random.random() ** 2),
        repeat_penalty=either(1.0, random.uniform(0.8, 1.5)),
        frequency_penalty=either(0.0, random.uniform(-1, 1)),
        presence_penalty=either(0.0, random.uniform(-1, 1)),
        penalty_last_n=int(random.choice([-1, 1, 5, 64, 1000])),
        logit_bias=biases,
    )


@pytest.mark.parametrize(("n_vocab", "cases", "close"), [(100, 800, 0.005), (5000, 400, 0.01), (151_936, 40, 0.1)])
@pytest.mark.parametrize("scale", [0.5, 3.0, 10.0])
def test_random_parameters_do_what_they_do_in_llama_cpp(n_vocab: int, cases: int, close: float, scale: float) -> None:
    random = np.random.default_rng([n_vocab, int(scale)])
    exact = 0
    for _ in range(cases):
        logits = random_logits(random, n_vocab, scale)
        history = random.integers(min(n_vocab, 50), size=random.integers(100)).tolist()
        exact += same(logits, random_params(random, n_vocab, scale), history)
    assert exact >= cases * (1 - close)


@pytest.mark.parametrize("n_vocab", [5000, 151_936])
@pytest.mark.parametrize("scale", [0.5, 3.0])
@pytest.mark.parametrize("typical_p", [0.05, 0.5, 0.95])
def test_typical_p_of_a_long_vocabulary(n_vocab: int, scale: float, typical_p: float) -> None:
    logits = random_logits(np.random.default_rng(n_vocab), n_vocab, scale)
    params = SamplingParams(**OFF | {"typical_p": typical_p})
    ours, theirs = distribution(logits, params, []), by_llama_cpp(logits, params, [])
    information = -log_softmax(logits.astype(np.float64))
    entropy = np.exp(-information) @ information
    distance = np.abs(information - entropy)
    cut = distance[ours.tokens].max()
    assert distance[np.setdiff1d(np.arange(n_vocab), ours.tokens)].min() > cut - 1e-9
    mass = np.exp(-information[ours.tokens])
    assert mass.sum() - mass[distance[ours.tokens].argmax()] < typical_p + 1e-9
    assert mass.sum() > typical_p - 1e-9
    differ = np.setxor1d(ours.tokens, theirs.tokens)
    assert np.abs(distance[differ] - cut).max(initial=0) < 2 * rounding(logits.astype(np.float64)) * (1 + entropy)


LOGITS = random_logits(np.random.default_rng(5), 500, 2.0)
HISTORY = [3, 4, 3, 3, 499, 0, 4, 17]


@pytest.mark.parametrize(
    "changes_to_off",
    [
        {},
        {"top_p": 0.0},
        {"min_p": 1.0},
        {"typical_p": 0.0},
        {"typical_p": 0.99},
        {"top_p": 0.99},
        {"top_p": 0.0, "min_p": 1.0, "typical_p": 0.0},
        {"top_k": 1},
        {"top_k": 499},
        {"top_k": 500},
        {"top_k": 501},
        {"top_k": 1 << 30},
        {"temperature": 0.0},
        {"temperature": 0.0, "repeat_penalty": 2.0, "frequency_penalty": 1.0},
        {"temperature": 0.0, "typical_p": 0.3},
        {"temperature": 0.01},
        {"temperature": 100.0},
        {"penalty_last_n": 0},
        *({"repeat_penalty": 1.7, "frequency_penalty": -0.5, "penalty_last_n": n} for n in (-1, 1, 2, 7, 8, 9, 1000)),
        {"repeat_penalty": 0.5, "presence_penalty": 3.0},
        {"frequency_penalty": 2.0},
        {"logit_bias": {3: -2.5, 4: 7.0, 499: -math.inf, 0: 100.0}},
        {"logit_bias": {3: -2.5, 4: 7.0}, "repeat_penalty": 3.0},
        {"logit_bias": dict.fromkeys(range(1, 500), -math.inf)},
        {"logit_bias": dict.fromkeys(range(10, 500), -math.inf), "top_k": 40},
        dataclasses.asdict(GREEDY),
        {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05},
    ],
    ids=str,
)
@pytest.mark.parametrize("history", [HISTORY, []], ids=["history", "no history"])
def test_edge_values_do_what_they_do_in_llama_cpp(changes_to_off: dict[str, Any], history: list[int]) -> None:
    assert same(LOGITS, SamplingParams(**OFF | changes_to_off), history)


def test_zero_is_multiplied_by_a_penalty_as_in_llama_cpp() -> None:
    logits = np.array([0.0, -0.0, 1.0, -1.0], dtype=np.float32)
    assert same(logits, SamplingParams(**OFF, repeat_penalty=2.0, presence_penalty=0.25), [0, 1, 2, 3])


@pytest.mark.parametrize("top_k", [1, 3, 40, 99])
def test_of_equal_logits_any_are_among_the_top_k(top_k: int) -> None:
    logits = np.zeros(5000, dtype=np.float32)
    logits[[7, 4999]] = 1
    found = distribution(logits, SamplingParams(**OFF | {"top_k": top_k}), [])
    assert np.unique(found.tokens).size == top_k
    assert set(found.tokens.tolist()) & {7, 4999} == ({7, 4999} if top_k > 1 else set(found.tokens.tolist()))


def test_biases_of_and_penalties_for_tokens_that_the_model_lacks_do_nothing() -> None:
    params = SamplingParams(**OFF, logit_bias={500: 3.0, 3: 1.0}, repeat_penalty=2.0)
    bare = SamplingParams(**OFF, logit_bias={3: 1.0}, repeat_penalty=2.0)
    there, here = distribution(LOGITS, params, [500, 4]), distribution(LOGITS, bare, [4])
    assert np.array_equal(there.log_probs, here.log_probs)


def test_logits_are_left_alone() -> None:
    logits = LOGITS.copy()
    logits.flags.writeable = False
    distribution(logits, SamplingParams(repeat_penalty=2.0, logit_bias={3: 1.0}), HISTORY)
    assert np.array_equal(logits, LOGITS)


@pytest.mark.parametrize("temperature", [5e-324, 1e-300, 1e-30, 1e-6])
@pytest.mark.parametrize("size", [500, 20_000])
@pytest.mark.filterwarnings("error")
def test_the_coldest_temperatures_take_the_likeliest_token(temperature: float, size: int) -> None:
    logits = np.arange(size, dtype=np.float32) / 100
    found = distribution(logits, SamplingParams(**OFF | {"temperature": temperature}), [])
    assert found.likeliest == size - 1
    assert found.log_prob(size - 1) == 0
    assert not np.isnan(found.log_probs).any()


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("params", [SamplingParams(), SamplingParams(**OFF), SamplingParams(temperature=0, top_k=3)])
@pytest.mark.parametrize("size", [10, 20_000])
@pytest.mark.parametrize("place", [0, -1])
def test_logits_that_are_no_numbers_are_refused(params: SamplingParams, value: float, size: int, place: int) -> None:
    logits = np.zeros(size, dtype=np.float32)
    logits[place] = value
    with pytest.raises(EvaluationError, match="not numbers"):
        distribution(logits, params, [])


@pytest.mark.parametrize("params", [SamplingParams(), SamplingParams(**OFF)])
def test_if_every_token_is_forbidden_there_is_no_distribution(params: SamplingParams) -> None:
    forbidden = dataclasses.replace(params, logit_bias=dict.fromkeys(range(500), -math.inf))
    with pytest.raises(EvaluationError, match="every token is forbidden"):
        distribution(LOGITS, forbidden, [])


@settings(deadline=None)
@given(seed=st.integers(0, 10_000), length=st.integers(0, 5), temperature=st.sampled_from([0.0, 1.0]))
def test_penalties_see_the_draft_before_a_position(seed: int, length: int, temperature: float) -> None:
    random = np.random.default_rng(seed)
    rows = random.normal(size=(length + 1, 6)).astype(np.float32)
    committed = random.integers(6, size=random.integers(1, 6)).tolist()
    last_n = int(random.choice([-1, 2, 4]))
    penalties = {"repeat_penalty": 3.0, "frequency_penalty": 1.0, "presence_penalty": 1.0, "penalty_last_n": last_n}
    rule = CoupledRule(SamplingParams(**OFF | penalties | {"temperature": temperature}), seed)

    text = list(committed)
    for row in rows:
        text.append(rule.verify(row[None, :], NO_DRAFT, text).token)
    right = text[len(committed) :]
    wrong_from = int(random.integers(length + 1))
    draft = [*right[:wrong_from], *random.integers(6, size=length - wrong_from).tolist()]

    verdict = rule.verify(rows, Draft(tuple(draft), "test"), committed)
    assert [*draft[: verdict.accepted], verdict.token] == right[: verdict.accepted + 1]
    assert verdict.accepted >= wrong_from


NUMBERS = ("temperature", "top_p", "min_p", "typical_p", "repeat_penalty", "frequency_penalty", "presence_penalty")
WHOLE = ("top_k", "penalty_last_n", "seed")
NO_NUMBER = (
    math.nan,
    math.inf,
    -math.inf,
    "1",
    None,
    True,
    np.True_,
    [0.5],
    1j,
    np.zeros((2, 2)),
    10**5000,
    "a\nb" * 99,
)


@pytest.mark.parametrize("value", NO_NUMBER, ids=lambda value: repr(value)[:9] if not isinstance(value, int) else "int")
@pytest.mark.parametrize("name", NUMBERS + WHOLE)
def test_what_is_no_number_is_refused_in_one_line(name: str, value: object) -> None:
    if name == "seed" and value is None:
        return
    with pytest.raises(PromptError) as caught:
        SamplingParams(**{name: value})
    message = str(caught.value)
    assert name in message
    assert "\n" not in message
    assert len(message) < 150


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"temperature": -0.1}, "temperature is -0.1; it must be 0 to 1e+06"),
        ({"temperature": 2e6}, "temperature is 2000000.0"),
        ({"top_k": -1}, "top_k is -1; it must be 0 to"),
        ({"top_k": 2.0}, "top_k must be a whole number, not 2.0"),
        ({"top_k": 1 << 40}, "top_k is"),
        ({"top_p": 1.01}, "top_p is 1.01; it must be 0 to 1"),
        ({"top_p": -0.5}, "top_p is -0.5"),
        ({"min_p": 2}, "min_p is 2"),
        ({"typical_p": -1}, "typical_p is -1"),
        ({"repeat_penalty": 0}, "repeat_penalty is 0"),
        ({"repeat_penalty": -1.1}, "repeat_penalty is -1.1"),
        ({"frequency_penalty": 1e7}, "frequency_penalty is"),
        ({"presence_penalty": -1e7}, "presence_penalty is"),
        ({"penalty_last_n": -2}, "penalty_last_n is -2; it must be -1 to"),
        ({"penalty_last_n": 0, "repeat_penalty": 1.1}, "penalty_last_n is 0"),
        ({"penalty_last_n": 0, "frequency_penalty": 0.1}, "penalty_last_n is 0"),
        ({"penalty_last_n": 0, "presence_penalty": 0.1}, "penalty_last_n is 0"),
        ({"seed": -1}, "seed is -1; it must be 0 to 18446744073709551615"),
        ({"seed": 1 << 64}, "seed is 18446744073709551616"),
        ({"seed": 0.5}, "seed must be a whole number, not 0.5"),
        ({"logit_bias": [(1, 2.0)]}, "logit_bias is [(1, 2.0)]; it must map token ids to numbers"),
        ({"logit_bias": {-1: 2.0}}, "a token of logit_bias is -1"),
        ({"logit_bias": {"1": 2.0}}, "a token of logit_bias must be a whole number, not '1'"),
        ({"logit_bias": {True: 2.0}}, "a token of logit_bias must be a whole number, not True"),
        ({"logit_bias": {1: "2"}}, "the logit_bias of token 1 must be a number, not '2'"),
        ({"logit_bias": {1: True}}, "the logit_bias of token 1 must be a number, not True"),
        ({"logit_bias": {1: math.nan}}, "the logit_bias of token 1 is nan"),
        ({"logit_bias": {1: math.inf}}, "the logit_bias of token 1 is inf"),
        ({"logit_bias": {1: np.zeros(2)}}, "the logit_bias of token 1 must be a number"),
        ({"logit_bias": dict.fromkeys(range(10_001), 0.0)}, "logit_bias has 10,001 tokens; 10,000 are the most"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_parameters_that_are_out_of_range_or_contradict_each_other_are_refused(
    params: dict[str, Any], message: str
) -> None:
    with pytest.raises(PromptError) as caught:
        SamplingParams(**params)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_numbers_of_numpy_and_of_other_kinds_become_plain_ones() -> None:
    params = SamplingParams(
        temperature=np.float32(0.5),
        top_p=np.float64(0.25),
        min_p=np.float16(0.5),
        typical_p=Fraction(1, 2),
        repeat_penalty=np.int64(2),
        frequency_penalty=1,
        top_k=np.int64(3),
        penalty_last_n=np.int16(-1),
        seed=np.uint64((1 << 64) - 1),
        logit_bias={np.int32(3): np.float32(0.5), 4: np.float32(-np.inf), 5: 2},
    )
    plain = SamplingParams(
        temperature=0.5,
        top_p=0.25,
        min_p=0.5,
        typical_p=0.5,
        repeat_penalty=2.0,
        frequency_penalty=1.0,
        top_k=3,
        penalty_last_n=-1,
        seed=(1 << 64) - 1,
        logit_bias={3: 0.5, 4: -math.inf, 5: 2.0},
    )
    assert params == plain
    assert repr(params) == repr(plain)


def test_biases_that_change_later_change_no_parameters() -> None:
    biases = {3: 1.0}
    params = SamplingParams(logit_bias=biases)
    biases[3] = 2.0
    assert params.logit_bias == {3: 1.0}


def test_parameters_can_be_copied_and_sent_to_other_processes() -> None:
    params = SamplingParams(temperature=0.3, logit_bias={3: 1.0})
    assert copy.deepcopy(params) == params
    assert pickle.loads(pickle.dumps(params)) == params
    assert SamplingParams(**dataclasses.asdict(params)) == params


@pytest.mark.parametrize(
    ("params", "is_greedy"),
    [
        (GREEDY, True),
        (SamplingParams(temperature=0), True),
        (SamplingParams(temperature=0, repeat_penalty=1.1), False),
        (SamplingParams(temperature=0, logit_bias={1: 1.0}), False),
        (SamplingParams(temperature=0, typical_p=0.5), False),
        (SamplingParams(temperature=0.1), False),
    ],
)
def test_greedy_is_what_takes_the_likeliest_token_as_it_is(params: SamplingParams, is_greedy: bool) -> None:
    assert params.is_greedy == is_greedy
    if is_greedy:
        assert distribution(LOGITS, params, HISTORY).tokens.tolist() == [LOGITS.argmax()]


def test_a_distribution_knows_its_tokens() -> None:
    found = Distribution(np.array([7, 3]), np.log([0.25, 0.75]))
    assert found.likeliest == 3
    assert found.log_prob(7) == math.log(0.25)
    assert found.log_prob(4) == -math.inf


def test_many_biases_are_what_each_of_them_is() -> None:
    random = np.random.default_rng(5)
    logits = random.normal(scale=4, size=500).astype(np.float32)
    biases = {int(token): float(random.normal(scale=30)) for token in random.permutation(600)[:300]}
    biases[3], biases[7] = -math.inf, 1e6
    expected = logits.copy()
    for token, bias in biases.items():
        if token < 500:
            expected[token] += np.float32(bias)
    params = SamplingParams(logit_bias=biases, **OFF)
    plain = SamplingParams(**OFF)
    found, wanted = distribution(logits, params, []), distribution(expected, plain, [])
    assert found.tokens.tolist() == wanted.tokens.tolist()
    assert found.log_probs.tobytes() == wanted.log_probs.tobytes()
