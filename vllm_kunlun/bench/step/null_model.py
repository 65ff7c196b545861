# SPDX-License-Identifier: Apache-2.0
"""A model that costs nothing: what it returns is allocated once.

The target always wants token `WANTED`. The draft proposes it for the first half of
its positions and another token after them, so that every step accepts some drafts
and rejects some.
"""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from vllm.config import ModelConfig, VllmConfig
from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
from vllm.model_executor.layers.logits_processor import LogitsProcessor
from vllm.model_executor.model_loader import register_model_loader
from vllm.model_executor.model_loader.base_loader import BaseModelLoader
from vllm.model_executor.models.interfaces import SupportsEagle3
from vllm.model_executor.models.qwen3_dspark import DSparkMarkovHead
from vllm.v1.attention.backend import AttentionBackend, AttentionMetadataBuilder
from vllm.v1.kv_cache_interface import FullAttentionSpec

LOAD_FORMAT = "vllm_kunlun_null"
HIDDEN = 8
"""Width of the hidden states if no other is asked for; a wider draft projects them."""
WANTED = 1
UNWANTED = 2
BLOCK_SIZE = 16


def accepted_of(drafts: int) -> int:
    """Return how many of so many drafts the target agrees with."""
    return (drafts + 1) // 2


class NullBuilder(AttentionMetadataBuilder[Any]):
    """Hands on what is common to all attention backends."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)

    def build(
        self,
        common_prefix_len: int,
        common_attn_metadata: Any,
        fast_build: bool = False,
    ) -> Any:
        """Return the common metadata."""
        return common_attn_metadata


class NullBackend(AttentionBackend):
    """An attention backend without attention."""

    @staticmethod
    def get_name() -> str:
        """Return its name."""
        return "NULL"

    @staticmethod
    def get_impl_cls() -> Any:
        """Refuse: nothing is computed."""
        raise NotImplementedError

    @staticmethod
    def get_builder_cls() -> type[NullBuilder]:
        """Return the builder of its metadata."""
        return NullBuilder

    @staticmethod
    def get_kv_cache_shape(
        num_blocks: int,
        block_size: int,
        num_kv_heads: int,
        head_size: int,
        cache_dtype_str: str = "auto",
    ) -> tuple[int, ...]:
        """Return the shape of a layer's cache."""
        return (num_blocks, 2, block_size, num_kv_heads, head_size)


class NullLayer(nn.Module, AttentionLayerBase):
    """An attention layer that only owns a KV cache."""

    def get_attn_backend(self) -> type[NullBackend]:
        """Return the backend without attention."""
        return NullBackend

    def get_kv_cache_spec(self, vllm_config: VllmConfig) -> FullAttentionSpec:
        """Return the smallest cache that has blocks."""
        return cache_spec()


def cache_spec() -> FullAttentionSpec:
    """Return what a `NullLayer` keeps."""
    return FullAttentionSpec(
        block_size=BLOCK_SIZE, num_kv_heads=1, head_size=1, dtype=torch.float32
    )


def rows_that_want(
    tokens: Sequence[int], repeats: int, vocabulary: int
) -> torch.Tensor:
    """Return logits [repeats * len(tokens), vocabulary], each row's best as given."""
    generator = torch.Generator().manual_seed(vocabulary)
    rows = torch.randn(len(tokens), vocabulary, generator=generator)
    rows[torch.arange(len(tokens)), torch.tensor(tokens)] = 20.0
    return rows.repeat(repeats, 1)


class NullTarget(nn.Module, SupportsEagle3):
    """Hidden states and logits from memory that is allocated once."""

    requires_raw_input_tokens = False

    def __init__(self, vllm_config: VllmConfig, groups: int) -> None:
        super().__init__()
        self.model = nn.Module()
        self.layers = nn.ModuleList(NullLayer() for _ in range(groups))
        self.layer_names = [f"model.layers.{i}.attn" for i in range(groups)]
        register_layers(vllm_config, self.layer_names, self.layers)
        scheduler = vllm_config.scheduler_config
        tokens = scheduler.max_num_batched_tokens
        hidden = vllm_config.model_config.get_hidden_size()
        vocabulary = vllm_config.model_config.get_vocab_size()
        per_request = 1 + vllm_config.num_speculative_tokens
        rows = scheduler.max_num_seqs * per_request
        self.hidden_states = torch.zeros(tokens, hidden)
        self.logits = rows_that_want([WANTED], rows, vocabulary)
        self.with_aux = False

    def set_aux_hidden_state_layers(self, layers: tuple[int, ...]) -> None:
        """Return auxiliary hidden states from now on, the same for each layer."""
        self.num_aux = len(layers)
        self.with_aux = True

    def get_eagle3_default_aux_hidden_state_layers(self) -> tuple[int, ...]:
        """Return one layer."""
        return (0,)

    def forward(self, positions: torch.Tensor, **inputs: Any) -> Any:
        """Return a hidden state for each of `positions`."""
        hidden = self.hidden_states[: positions.shape[0]]
        return (hidden, [hidden] * self.num_aux) if self.with_aux else hidden

    def compute_logits(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Return logits [hidden_states' rows, vocabulary]."""
        # The sampler may change them in place.
        return self.logits[: hidden_states.shape[0]].clone()


class NullDraft(nn.Module):
    """What `DSparkSpeculator` asks of its model, from memory that is allocated once."""

    draft_id_to_target_id = None

    def __init__(
        self, vllm_config: VllmConfig, model_config: ModelConfig, groups: int
    ) -> None:
        super().__init__()
        vocabulary = model_config.get_vocab_size()
        self.config = SimpleNamespace(draft_vocab_size=vocabulary)
        self.logits_processor = LogitsProcessor(vocabulary)
        self.model = nn.Module()
        # A real one, as drafters may read it in place; it adds nothing.
        self.model.markov_head = DSparkMarkovHead(vocabulary, vocabulary, 1, "")
        for weight in self.model.parameters():
            weight.data.zero_()
        first = groups
        self.layers = nn.ModuleList(NullLayer() for _ in range(groups))
        self.layer_names = [f"model.layers.{first + i}.attn" for i in range(groups)]
        register_layers(vllm_config, self.layer_names, self.layers)
        requests = vllm_config.scheduler_config.max_num_seqs
        drafts = vllm_config.num_speculative_tokens
        hidden = model_config.get_hidden_size()
        tokens = vllm_config.scheduler_config.max_num_batched_tokens
        wanted = accepted_of(drafts)
        columns = [WANTED] * wanted + [UNWANTED] * (drafts - wanted)
        self.hidden_states = torch.zeros(tokens, hidden)
        self.logits = rows_that_want(columns, requests, vocabulary)
        self.combine: torch.Tensor | None = None
        if hidden > HIDDEN:
            self.combine = torch.zeros(hidden, hidden)
            self.keys_and_values = torch.zeros(2 * hidden, hidden)
        self.embedded = torch.zeros(requests, 1)
        self.bias = torch.zeros(requests, vocabulary)

    def get_draft_kv_cache_layer_names(self) -> list[str]:
        """Return one layer per KV group."""
        return self.layer_names

    def combine_hidden_states(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Return a hidden state for each row."""
        if self.combine is not None:
            return nn.functional.linear(hidden_states, self.combine)
        return self.hidden_states[: hidden_states.shape[0]]

    def precompute_and_store_context_kv(
        self, hidden_states: torch.Tensor, *arguments: Any
    ) -> None:
        """Project to keys and values of a layer, where it is wide; store nothing."""
        if self.combine is not None:
            nn.functional.linear(hidden_states, self.keys_and_values)

    def forward(self, input_ids: torch.Tensor, **inputs: Any) -> torch.Tensor:
        """Return a hidden state for each of `input_ids`."""
        return self.hidden_states[: input_ids.shape[0]]

    def compute_draft_logits(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Return logits of rows ordered by request, then by draft position."""
        return self.logits[: hidden_states.shape[0]].clone()

    def markov_embed(self, token_ids: torch.Tensor) -> torch.Tensor:
        """Return nothing but zeros."""
        return self.embedded[: token_ids.shape[0]]

    def markov_bias(self, markov_embed: torch.Tensor) -> torch.Tensor:
        """Return nothing but zeros."""
        return self.bias[: markov_embed.shape[0]]

    def map_draft_to_target(self, draft_ids: torch.Tensor) -> torch.Tensor:
        """Return the same ids: both vocabularies are one."""
        return draft_ids


def register_layers(
    vllm_config: VllmConfig, names: Sequence[str], layers: nn.ModuleList
) -> None:
    """Enter layers where the runner looks for attention layers."""
    context = vllm_config.compilation_config.static_forward_context
    context.update(zip(names, layers, strict=True))


@register_model_loader(LOAD_FORMAT)
class NullLoader(BaseModelLoader):
    """Gives a `NullTarget`, or a `NullDraft` for the drafter's config."""

    def load_model(
        self, vllm_config: VllmConfig, model_config: ModelConfig, prefix: str = ""
    ) -> nn.Module:
        """Make the model; it reads no file."""
        groups = self.load_config.model_loader_extra_config["groups"]
        # The count takes memory for the device's where a device is named.
        with torch.device("cpu"):
            if model_config is vllm_config.model_config:
                return NullTarget(vllm_config, groups)
            return NullDraft(vllm_config, model_config, groups)

    def download_model(self, model_config: ModelConfig) -> None:
        """Fetch nothing."""

    def load_weights(self, model: nn.Module, model_config: ModelConfig) -> None:
        """Load nothing."""
