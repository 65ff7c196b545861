# SPDX-License-Identifier: Apache-2.0
"""The target's hidden states of the texts: what a draft is told of its context."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from vllm_kunlun.files import write_whole
from vllm_kunlun.train.texts import Text, num_shards, read_shard, shard

BATCH = 16


@dataclass(frozen=True)
class Sequenced:
    """A text and what the target made of it.

    Attributes:
        tokens: [length], int64; prompt and answer.
        states: [length, layers * hidden_size]: outputs of the target layers.
        prompt_length: how many of the tokens are the prompt's.
    """

    tokens: torch.Tensor
    states: torch.Tensor
    prompt_length: int


class Target:
    """The target, as transformers run it.

    Attributes:
        embeddings: [vocab_size, hidden_size].
        lm_head: the same shape.
        norm: [hidden_size], what its LM head's input is scaled by.
    """

    def __init__(
        self, folder: Path, layer_ids: Sequence[int], dtype: torch.dtype
    ) -> None:
        """Load a model of Llama's build.

        Args:
            folder: of the target in Hugging Face format.
            layer_ids: layers whose outputs are wanted, the first being 0.
            dtype: to compute in.

        Raises:
            ValueError: it has no such layer, or the last one is not at the end.
        """
        from transformers import AutoModelForCausalLM

        causal: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
        self._model = causal.model.eval()
        num_layers = len(self._model.layers)
        for i in layer_ids:
            if not 0 <= i < num_layers:
                raise ValueError(
                    f"--layers names layer {i}, but {folder} has the layers 0 to "
                    f"{num_layers - 1}: choose of these."
                )
        if layer_ids[-1] != num_layers - 1:
            raise ValueError(
                f"--layers must end with the last layer of {folder}, which is "
                f"{num_layers - 1}, but ends with {layer_ids[-1]}."
            )
        self._layer_ids = layer_ids
        self.embeddings: torch.Tensor = causal.get_input_embeddings().weight.detach()
        self.lm_head: torch.Tensor = causal.get_output_embeddings().weight.detach()
        self.norm: torch.Tensor = self._model.norm.weight.detach()

    def states(self, tokens: torch.Tensor) -> torch.Tensor:
        """Run the target ([B, L] -> [B, L, layers * hidden_size])."""
        found: dict[int, torch.Tensor] = {}

        def keep(number: int) -> Any:
            def hook(_module: Any, _inputs: Any, output: Any) -> None:
                found[number] = output[0] if isinstance(output, tuple) else output

            return hook

        hooks = [
            self._model.layers[i].register_forward_hook(keep(i))
            for i in self._layer_ids
        ]
        try:
            with torch.inference_mode():
                self._model(tokens, use_cache=False)
        finally:
            for hook in hooks:
                hook.remove()
        return torch.cat([found[i] for i in self._layer_ids], dim=-1)


def states_of(target: Target, texts: Sequence[Text]) -> list[Sequenced]:
    """Return the texts with their hidden states, in their order."""
    tokens = [torch.tensor([*t.prompt, *t.answer]) for t in texts]
    order = sorted(range(len(texts)), key=lambda i: len(tokens[i]))
    found: dict[int, torch.Tensor] = {}
    for begin in range(0, len(order), BATCH):
        chosen = order[begin : begin + BATCH]
        # Attention is causal: what is padded at the end changes nothing before it.
        padded = torch.nn.utils.rnn.pad_sequence(
            [tokens[i] for i in chosen], batch_first=True
        )
        states = target.states(padded)
        for row, i in enumerate(chosen):
            found[i] = states[row, : len(tokens[i])].clone()
    return [
        Sequenced(tokens[i], found[i], len(text.prompt)) for i, text in enumerate(texts)
    ]


def _path(folder: Path, number: int) -> Path:
    return folder / f"states-{number:03}.safetensors"


def write_states(target: Target, folder: Path, num_prompts: int) -> Iterator[str]:
    """Compute the hidden states of all shards of texts; what is there stays.

    Yields:
        After each shard what was done.
    """
    number = num_shards(num_prompts)
    for i in range(number):
        path = _path(folder, i)
        if not path.exists():
            sequences = states_of(target, read_shard(shard(folder, i)))
            tensors = {
                "tokens": torch.cat([s.tokens for s in sequences]).int(),
                "states": torch.cat([s.states for s in sequences]),
                "lengths": torch.tensor([len(s.tokens) for s in sequences]),
                "prompt_lengths": torch.tensor([s.prompt_length for s in sequences]),
            }
            write_whole(path, partial(save_file, tensors))
            yield f"hidden states {i + 1} of {number}"


def read_states(folder: Path, num_prompts: int) -> list[Sequenced]:
    """Return all texts with their hidden states, which stay in the files."""
    found: list[Sequenced] = []
    for i in range(num_shards(num_prompts)):
        tensors = load_file(_path(folder, i))
        begin = 0
        for length, prompt_length in zip(
            tensors["lengths"].tolist(), tensors["prompt_lengths"].tolist(), strict=True
        ):
            rows = slice(begin, begin + length)
            found.append(
                Sequenced(
                    tensors["tokens"][rows].long(),
                    tensors["states"][rows],
                    prompt_length,
                )
            )
            begin += length
    return found
