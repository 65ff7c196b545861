# SPDX-License-Identifier: Apache-2.0
"""DSpark without a draft model: real acceptance, and the tokens of V1."""

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import VOCAB_SIZE
from engine import GREEDY, dspark, engine, keep_async_scheduling, tokens
from vllm import LLM, SamplingParams
from vllm.sampling_params import StructuredOutputsParams
from vllm.v1.core.sched.output import SchedulerOutput

NUM_DRAFTS = 7
MODEL_FREE = {"method": "dspark", "num_speculative_tokens": NUM_DRAFTS}
MAX_TOKENS = 60


def made_prompts() -> list[list[int]]:
    """Make prompts that repeat themselves, and some that do not."""
    rng = random.Random(0)
    words = [[rng.randrange(VOCAB_SIZE) for _ in range(9)] for _ in range(12)]
    repeated = [(words[i] * 4)[: 20 + i] for i in range(6)]
    single = [[rng.randrange(VOCAB_SIZE)] for _ in range(3)]
    return (
        repeated
        + [w[:5] for w in words[6:9]]
        + single
        + [[t for w in words for t in w]]
    )


PROMPTS = made_prompts()


@pytest.fixture(scope="module")
def expected(bigram_model: Path) -> list[list[int]]:
    """Ask V1 once."""
    with engine(bigram_model, use_v2=False) as llm:
        return tokens(llm, PROMPTS, MAX_TOKENS)


def counters(llm: LLM) -> dict[str, Any]:
    """Return the engine's counters; those by position as lists."""
    prefix = "vllm:spec_decode_"
    return {
        m.name.removeprefix(prefix): getattr(m, "value", getattr(m, "values", None))
        for m in llm.get_metrics()
    }


SCENARIOS: dict[str, dict[str, Any]] = {
    "adaptive": {},
    "all drafts": {"adaptive_draft_length": False},
    "chunked prefill": {"max_num_batched_tokens": 48, "max_num_seqs": 4},
    "preemption": {"num_gpu_blocks_override": 18, "max_num_seqs": 12},
    "max_model_len": {"max_model_len": 128, "max_num_seqs": 5},
    "async": {"async": True, "max_num_batched_tokens": 64},
    "async all drafts": {"async": True, "adaptive_draft_length": False},
}


@pytest.fixture
def async_scheduling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turn it on for the test's engines from now on."""
    keep_async_scheduling(monkeypatch)


@pytest.mark.parametrize("name", SCENARIOS)
def test_tokens_are_those_of_v1(
    name: str,
    bigram_model: Path,
    expected: list[list[int]],
    request: pytest.FixtureRequest,
) -> None:
    """However requests come and go, and the counters add up."""
    options = dict(SCENARIOS[name])
    if options.pop("async", False):
        request.getfixturevalue("async_scheduling")
    speculative = dict(MODEL_FREE)
    if (adaptive := options.pop("adaptive_draft_length", None)) is not None:
        speculative["adaptive_draft_length"] = adaptive
    limit = options.get("max_model_len", 256)
    prompts = [p for p in PROMPTS if len(p) < limit]
    options = {"block_size": 16, **options}
    with engine(bigram_model, speculative_config=speculative, **options) as llm:
        for _ in range(2):  # the second time from the prefix cache
            result = tokens(llm, prompts, MAX_TOKENS)
            wanted = [
                want[: limit - len(prompt)]
                for prompt, want in zip(PROMPTS, expected, strict=True)
                if len(prompt) < limit
            ]
            assert result == wanted
        seen = counters(llm)
    assert seen["num_accepted_tokens"] > 100
    assert sum(seen["num_accepted_tokens_per_pos"]) == seen["num_accepted_tokens"]
    assert sum(seen["num_verified_tokens_per_pos"]) == seen["num_draft_tokens"]
    assert seen["num_verified_tokens_per_pos"][0] == seen["num_drafts"]
    every = seen["num_draft_tokens"] + seen["num_skipped_tokens"]
    assert every % NUM_DRAFTS == 0
    if name == "adaptive":
        assert seen["vllm:prefix_cache_hits"] > 0
    if name == "preemption":
        assert seen["vllm:num_preemptions"] > 0
    # Each token after a request's first is a step's own or an accepted draft; the
    # drafts accepted beyond a request's last token are counted too.
    if name in ("adaptive", "async"):
        steps = every // NUM_DRAFTS
        later = 2 * sum(len(w) - 1 for w in wanted)
        assert steps < later <= steps + seen["num_accepted_tokens"]


def test_several_outputs(bigram_model: Path, expected: list[list[int]]) -> None:
    """Of one candidate all of a request's outputs are the greedy one."""
    params = SamplingParams(
        **{**GREEDY, "temperature": 1, "top_k": 1}, n=3, seed=1, max_tokens=MAX_TOKENS
    )
    requests: list[Any] = [{"prompt_token_ids": p} for p in PROMPTS]
    with engine(bigram_model, speculative_config=MODEL_FREE) as llm:
        outputs = llm.generate(requests, params, use_tqdm=False)
        accepted = counters(llm)["num_accepted_tokens"]
    for output, want in zip(outputs, expected, strict=True):
        assert [list(o.token_ids) for o in output.outputs] == [want] * 3
    assert accepted > 100


@pytest.mark.parametrize("switched", [False, True], ids=["off", "on"])
def test_a_seed_says_what_it_says_without_drafts(
    switched: bool, bigram_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many drafts are verified, at any temperature, in any batch."""
    from vllm_kunlun import switches

    chosen = switches.Switches() if switched else switches.ALL_OFF
    monkeypatch.setattr(switches, "current", lambda: chosen)
    params = [
        SamplingParams(
            temperature=temperature,
            seed=seed,
            max_tokens=MAX_TOKENS,
            ignore_eos=True,
            detokenize=False,
        )
        for seed, temperature in enumerate((0.0, 0.3, 0.6, 1.0) * 4)
    ][: len(PROMPTS)]
    requests: list[Any] = [{"prompt_token_ids": p} for p in PROMPTS]
    said = []
    for speculative in (
        None,
        MODEL_FREE,
        {**MODEL_FREE, "adaptive_draft_length": False},
    ):
        for order in (1, -1) if speculative else (1,):
            with engine(
                bigram_model, use_v2=True, speculative_config=speculative
            ) as llm:
                outputs = llm.generate(
                    requests[::order], params[::order], use_tqdm=False
                )
                if speculative is not None:
                    assert counters(llm)["num_accepted_tokens"] > 50
            said.append([list(o.outputs[0].token_ids) for o in outputs[::order]])
    assert all(tokens == said[0] for tokens in said)


def grammar(**more: Any) -> dict[str, Any]:
    """Return the parameters of a request that ends with its grammar."""
    params = StructuredOutputsParams(**more)
    return {"structured_outputs": params, "ignore_eos": False}


REQUESTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "stop": {"stop": ["ab"], "ignore_eos": False},
    "stop token": {"stop_token_ids": list(range(150, 200)), "ignore_eos": False},
    "logprobs": {"logprobs": 2},
    "penalty": {"frequency_penalty": 1.5},
    "choice": grammar(choice=["yes", "no"]),
    "forced": grammar(regex="(abcd){10}"),
    "free": grammar(regex="(ab|abc|d){9,}"),
}


def ask(llm: LLM) -> dict[str, Any]:
    """Ask for all kinds in one batch; return tokens, text, ranks and reasons."""
    defaults = {"temperature": 0, "max_tokens": 48, "ignore_eos": True}
    params = [SamplingParams(**{**defaults, **more}) for more in REQUESTS.values()]
    outputs = llm.generate(["abab abab ab"] * len(params), params, use_tqdm=False)
    return {
        name: (
            list(o.outputs[0].token_ids),
            o.outputs[0].text,
            o.outputs[0].finish_reason,
            [sorted(step) for step in o.outputs[0].logprobs or []],
        )
        for name, o in zip(REQUESTS, outputs, strict=True)
    }


def test_kinds_of_requests(text_model: Path, request: pytest.FixtureRequest) -> None:
    """Grammars, stops, logprobs and penalties, with both kinds of scheduling."""
    with engine(text_model, use_v2=False, skip_tokenizer_init=False) as llm:
        wanted = ask(llm)
    for _ in range(2):
        with engine(
            text_model, skip_tokenizer_init=False, speculative_config=MODEL_FREE
        ) as llm:
            found = ask(llm)
            assert {n: found[n] for n in REQUESTS if found[n] != wanted[n]} == {}
            assert counters(llm)["num_accepted_tokens"] > 20
        request.getfixturevalue("async_scheduling")


def test_search_gives_the_same(
    bigram_model: Path, expected: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """KUNLUN_DRAFT_CACHE=0 drafts the same without an index."""
    from vllm_kunlun import switches

    seen = []
    for value in ("0", "1"):
        monkeypatch.setenv("KUNLUN_DRAFT_CACHE", value)
        switches.current.cache_clear()
        # With a measured cost no two runs verify the same drafts.
        config = {**MODEL_FREE, "draft_verify_cost": 0.01}
        with engine(bigram_model, speculative_config=config) as llm:
            assert tokens(llm, PROMPTS, MAX_TOKENS) == expected
            seen.append(counters(llm)["num_accepted_tokens_per_pos"])
    switches.current.cache_clear()
    assert seen[0] == seen[1]


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (
            {"prompt_lookup_min": 5, "prompt_lookup_max": 3},
            "prompt_lookup_min=5 is more than prompt_lookup_max=3: lower the first or",
        ),
        ({"draft_free_rows": 16}, "draft_free_rows=16 counts only with a draft_verify"),
        ({"prompt_lookup_max": 65}, "prompt_lookup_max=65 is more than dspark looks"),
        (
            {"draft_sample_method": "probabilistic"},
            "draft_sample_method='probabilistic' needs the probabilities of a draft",
        ),
    ],
)
def test_wrong_values(bigram_model: Path, more: dict[str, Any], sentence: str) -> None:
    """Each is refused when the config is made."""
    with (
        pytest.raises(ValueError, match=sentence),
        engine(bigram_model, speculative_config={**MODEL_FREE, **more}),
    ):
        pass


def test_padded_drafts_are_not_accepted(bigram_model: Path, bigram_draft: Path) -> None:
    """A one-token prompt that joins a batch gets one token, whatever the padding is."""
    config = dspark(bigram_draft, draft_sample_method="probabilistic")
    with engine(bigram_model, speculative_config=config) as llm:
        add, step = llm.llm_engine.add_request, llm.llm_engine.step
        running = SamplingParams(**{**GREEDY, "temperature": 1, "max_tokens": 40})
        add("running", {"prompt_token_ids": [1, 2, 3]}, running)
        for _ in range(3):
            step()
        before = counters(llm)["num_draft_tokens"]
        # Padding is token 0, which is all that this request may say.
        joins = SamplingParams(**GREEDY, max_tokens=12, allowed_token_ids=[0])
        add("joins", {"prompt_token_ids": [7]}, joins)
        first = [o for o in step() if o.request_id == "joins"]
        assert [len(o.outputs[0].token_ids) for o in first] == [1]
        # The other request's three drafts alone were verified.
        assert counters(llm)["num_draft_tokens"] == before + 3
        while llm.llm_engine.has_unfinished_requests():
            step()


def test_what_drafts_cost_is_measured(bigram_model: Path) -> None:
    """An engine's own steps say it, and a given cost stands."""

    def cost(worker: Any) -> tuple[float, int]:
        speculator = worker.model_runner.speculator
        batch = SimpleNamespace(is_prefilling_np=np.array([True]), num_reqs=4)
        return tuple(speculator._cost(batch))

    given = {"draft_verify_cost": 0.3, "draft_free_rows": 2}
    for more, first, last in (({}, (0.01, 8), None), (given, (0.3, 2), (0.3, 2))):
        config = {**MODEL_FREE, **more}
        with engine(bigram_model, speculative_config=config) as llm:
            assert llm.collective_rpc(cost) == [first]
            tokens(llm, PROMPTS, MAX_TOKENS)
            found = llm.collective_rpc(cost)[0]
        if last is None:
            # The steps of a model this small are mostly noise.
            assert 0 <= found[0] <= 100
            assert found[1] == 0
        else:
            assert found == last


def batch_of(num_reqs: int) -> Any:
    """Return what of a batch counts for the drafts' number."""
    return SimpleNamespace(
        req_ids=["a", "b", "c"][:num_reqs],
        idx_mapping=torch.arange(num_reqs),
        has_structured_output_reqs=False,
        num_draft_tokens_per_req=np.array([3, 1, 3], np.int32)[:num_reqs],
    )


@pytest.mark.parametrize("has_peers", [False, True])
def test_ranks_drop_the_same_drafts(
    has_peers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever has arrived at which of them; a rank alone takes the latest there is."""
    import vllm.v1.worker.cpu.shm  # noqa: F401  (the CPU's streams and events)

    from vllm_kunlun.draft.ngram.lengths import DraftLengths

    num_drafts = torch.zeros(3, dtype=torch.int32)
    planned = SchedulerOutput.make_empty()
    planned.scheduled_spec_decode_tokens = {"a": [-1] * 3, "b": [-1] * 3}
    planned.num_scheduled_tokens = {"a": 4, "b": 4, "c": 1}
    planned.total_num_scheduled_tokens = 9
    found = {}
    for arrived in (True, False):
        lengths = DraftLengths(torch.device("cpu"), num_drafts, has_peers=has_peers)
        for drafts in ([2, 0, 0], [1, 3, 0]):
            num_drafts[:] = torch.tensor(drafts)
            lengths.set_draft_tokens(batch_of(3), torch.zeros(3, 3, dtype=torch.int64))
            monkeypatch.setattr(lengths.latest.copied, "query", lambda a=arrived: a)
            trimmed = lengths.trim(planned)
        kept = trimmed.scheduled_spec_decode_tokens
        assert trimmed.total_num_scheduled_tokens == 3 + sum(map(len, kept.values()))
        assert planned.total_num_scheduled_tokens == 9
        found[arrived] = {req_id: len(drafts) for req_id, drafts in kept.items()}
    if has_peers:
        assert found == {True: {"a": 2}, False: {"a": 2}}
    else:
        assert found == {True: {"a": 1, "b": 3}, False: {}}


def test_drafts_are_counted_after_the_next_step_is_planned() -> None:
    """As with async scheduling, where a batch's arrays hold the next one by then."""
    import vllm.v1.worker.cpu.shm  # noqa: F401  (the CPU's streams and events)

    from vllm_kunlun.draft.ngram.lengths import DraftLengths

    num_drafts = torch.tensor([2, 3, 0], dtype=torch.int32)
    lengths = DraftLengths(torch.device("cpu"), num_drafts, has_peers=False)
    batch = batch_of(3)
    lengths.set_draft_tokens(batch, torch.zeros(3, 3, dtype=torch.int64))
    count = lengths.count(batch)
    batch.num_draft_tokens_per_req[:] = [0, 3, 0]
    assert count() == {"a": 2, "b": 1, "c": 0}


def test_rows_without_a_draft() -> None:
    """What is verified is -1 behind a request's drafts and throughout a padded row."""
    from vllm.v1.worker.gpu.model_runner_v2 import ModelRunnerV2

    runner = ModelRunnerV2.__new__(ModelRunnerV2)
    batch: Any = SimpleNamespace(
        logits_indices=torch.arange(9) + 2,
        expanded_idx_mapping=torch.tensor([2, 2, 2, 1, 1, 1, 0, 0, 0]),
        expanded_local_pos=torch.tensor([0, 1, 2] * 3),
        is_prefilling_np=np.array([False, False, True]),
        any_prefilling=None,
        num_draft_tokens_per_req=np.array([2, 2, 2]),
        query_start_loc_np=np.array([2, 5, 8, 11]),
    )
    lengths = torch.tensor([9, 1, 2], dtype=torch.int32)
    for num_drafts, short in ((None, 107), (lengths, -1)):
        batch.input_ids = torch.arange(100, 112, dtype=torch.int32)
        runner.req_states = SimpleNamespace(num_drafts=num_drafts)
        runner._mark_missing_drafts(batch)
        rows = [100, 101, 102, 103, 104, 105, 106, short, 108, -1, -1, 111]
        assert batch.input_ids.tolist() == rows
