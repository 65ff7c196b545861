# SPDX-License-Identifier: Apache-2.0
"""Which runner an engine takes, and that scheduler and worker agree on it."""

import logging
from pathlib import Path

import pytest
from engine import dspark, engine, runner, tokens
from vllm.v1.worker.cpu_model_runner import CPUModelRunner as CPUModelRunnerV1

PROMPTS = [[1, 5, 9, 20, 33], [7]]
IGNORED = "VLLM_USE_V2_MODEL_RUNNER=0 is ignored"


@pytest.mark.parametrize("use_v2", [None, False, True], ids=["not set", "0", "1"])
@pytest.mark.parametrize("speculate", [False, True], ids=["plain", "dspark"])
def test_dispatch(
    model: Path,
    draft: Path,
    use_v2: bool | None,
    speculate: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Dspark takes V2 whatever is set; without it 0 means V1."""
    from vllm.v1.worker.gpu.model_runner_v2 import ModelRunnerV2

    warnings: list[str] = []
    logger = logging.getLogger("vllm.config.speculative")
    monkeypatch.setattr(
        logger, "warning_once", lambda text, *rest, **scope: warnings.append(text)
    )
    speculative = dspark(draft) if speculate else None
    with engine(model, use_v2=use_v2, speculative_config=speculative) as llm:
        is_v2 = speculate or use_v2 is not False
        assert issubclass(runner(llm), ModelRunnerV2 if is_v2 else CPUModelRunnerV1)
        core = llm.llm_engine.engine_core.engine_core
        assert core.scheduler.use_v2_model_runner is is_v2
        assert llm.llm_engine.vllm_config.use_v2_model_runner is is_v2
        assert len(tokens(llm, PROMPTS, 4)) == 2
    ignored = [w for w in warnings if w.startswith(IGNORED)]
    assert len(ignored) == int(speculate and use_v2 is False)
