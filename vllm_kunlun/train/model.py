# SPDX-License-Identifier: Apache-2.0
"""A DSpark draft in plain torch: what vLLM's `Qwen3DSparkForCausalLM` computes.

Parameters are named as in a checkpoint. Embeddings and LM head are the target's, of
which the LM head only has the rows of tokens that can be drafted.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class Shape:
    """Sizes of a draft.

    Attributes:
        hidden_size: of the target, too.
        num_features: layers of the target whose outputs the draft is given.
        num_layers: layers of the draft.
        num_heads, num_kv_heads, head_dim: of its attention.
        intermediate_size: of its MLPs.
        markov_rank: of its Markov head.
        vocab_size, draft_vocab_size: the target's, and what can be drafted.
        block_size: tokens drafted at once.
        rope_theta, rms_norm_eps: as in Qwen3's config.
        mask_token_id: stands for tokens that are to be drafted.
    """

    hidden_size: int
    num_features: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    markov_rank: int
    vocab_size: int
    draft_vocab_size: int
    block_size: int
    rope_theta: float
    rms_norm_eps: float
    mask_token_id: int


class Rope(nn.Module):
    """Rotary embeddings in Neox's order."""

    def __init__(self, head_dim: int, theta: float) -> None:
        super().__init__()
        powers = torch.arange(0, head_dim, 2).float() / head_dim
        self.register_buffer("_frequencies", theta**-powers, persistent=False)

    def forward(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Turn `x` ([B, T, heads, head_dim]) by its `positions` ([B, T])."""
        angles = positions[..., None].float() * self._frequencies
        cos, sin = angles.cos()[:, :, None], angles.sin()[:, :, None]
        first, second = x.float().chunk(2, dim=-1)
        turned = (first * cos - second * sin, second * cos + first * sin)
        return torch.cat(turned, dim=-1).to(x.dtype)


class Attention(nn.Module):
    """Queries of drafted blocks, keys of the context and of the block itself."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self._heads, self._kv_heads = shape.num_heads, shape.num_kv_heads
        hidden, dim = shape.hidden_size, shape.head_dim
        self.q_proj = nn.Linear(hidden, self._heads * dim, bias=False)
        self.k_proj = nn.Linear(hidden, self._kv_heads * dim, bias=False)
        self.v_proj = nn.Linear(hidden, self._kv_heads * dim, bias=False)
        self.o_proj = nn.Linear(self._heads * dim, hidden, bias=False)
        self.q_norm = nn.RMSNorm(dim, shape.rms_norm_eps)
        self.k_norm = nn.RMSNorm(dim, shape.rms_norm_eps)
        self._rope = Rope(dim, shape.rope_theta)

    def _keys_values(
        self, x: torch.Tensor, positions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        k = self.k_proj(x).unflatten(-1, (self._kv_heads, -1))
        v = self.v_proj(x).unflatten(-1, (self._kv_heads, -1))
        return self._rope(self.k_norm(k.float()), positions), v

    def forward(
        self,
        x: torch.Tensor,
        positions: torch.Tensor,
        context: torch.Tensor,
        context_positions: torch.Tensor,
        visible: torch.Tensor,
    ) -> torch.Tensor:
        """Attend.

        Args:
            x: [B, Q, hidden_size], the rows of all blocks.
            positions: [B, Q].
            context: [B, L, hidden_size], normalised.
            context_positions: [B, L].
            visible: [B, 1, Q, L + Q], bool: which key a query may see.
        """
        q = self._rope(
            self.q_norm(self.q_proj(x).unflatten(-1, (self._heads, -1)).float()),
            positions,
        )
        context_k, context_v = self._keys_values(context, context_positions)
        block_k, block_v = self._keys_values(x, positions)
        k = torch.cat([context_k, block_k], dim=1)
        v = torch.cat([context_v, block_v], dim=1)
        groups = self._heads // self._kv_heads
        out = F.scaled_dot_product_attention(
            q.transpose(1, 2).to(v.dtype),
            k.transpose(1, 2).to(v.dtype).repeat_interleave(groups, dim=1),
            v.transpose(1, 2).repeat_interleave(groups, dim=1),
            attn_mask=visible,
        )
        return self.o_proj(out.transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    """SwiGLU."""

    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the same shape."""
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """A layer of the backbone."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        hidden, eps = shape.hidden_size, shape.rms_norm_eps
        self.input_layernorm = nn.RMSNorm(hidden, eps)
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = nn.RMSNorm(hidden, eps)
        self.mlp = Mlp(hidden, shape.intermediate_size)

    def forward(self, x: torch.Tensor, *about: torch.Tensor) -> torch.Tensor:
        """Return the same shape; `about` as `Attention` has it."""
        x = x + self.self_attn(self.input_layernorm(x), *about)
        return x + self.mlp(self.post_attention_layernorm(x))


class MarkovHead(nn.Module):
    """A bias that depends on the token before."""

    def __init__(self, vocab_size: int, draft_vocab_size: int, rank: int) -> None:
        super().__init__()
        self.markov_w1 = nn.Embedding(vocab_size, rank)
        self.markov_w2 = nn.Linear(rank, draft_vocab_size, bias=False)


class ConfidenceHead(nn.Module):
    """The log-odds that a draft is accepted, provided that those before it are."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.proj = nn.Linear(width, 1)


class Draft(nn.Module):
    """The draft."""

    embeddings: torch.Tensor
    lm_head: torch.Tensor

    def __init__(
        self, shape: Shape, embeddings: torch.Tensor, lm_head: torch.Tensor
    ) -> None:
        """Make a draft with torch's initial weights.

        Args:
            shape: its sizes.
            embeddings: [vocab_size, hidden_size], the target's.
            lm_head: [draft_vocab_size, hidden_size], rows of the target's.
        """
        super().__init__()
        self.shape = shape
        hidden, eps = shape.hidden_size, shape.rms_norm_eps
        self.fc = nn.Linear(shape.num_features * hidden, hidden, bias=False)
        self.hidden_norm = nn.RMSNorm(hidden, eps)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.num_layers))
        self.norm = nn.RMSNorm(hidden, eps)
        self.markov_head = MarkovHead(
            shape.vocab_size, shape.draft_vocab_size, shape.markov_rank
        )
        self.confidence_head = ConfidenceHead(hidden + shape.markov_rank)
        self.register_buffer("embeddings", embeddings, persistent=False)
        self.register_buffer("lm_head", lm_head, persistent=False)

    def forward(
        self, tokens: torch.Tensor, states: torch.Tensor, anchors: torch.Tensor
    ) -> torch.Tensor:
        """Run the backbone on blocks that begin at some of the tokens.

        Args:
            tokens: [B, L], int64; padded at the end.
            states: [B, L, num_features * hidden_size]: the target's.
            anchors: [B, A], int64: positions of the last tokens known. A block sees the
                states of all tokens before its anchor, and no other block.

        Returns:
            [B, A, block_size, hidden_size], f32: of the tokens after the anchor.
        """
        (batch, length), n = tokens.shape, self.shape.block_size
        places = torch.arange(n, device=tokens.device)
        positions = (anchors[..., None] + places).flatten(1)
        ids = torch.full(
            (*anchors.shape, n), self.shape.mask_token_id, device=tokens.device
        )
        ids[..., 0] = tokens.gather(1, anchors)
        x = F.embedding(ids.flatten(1), self.embeddings).float()

        context = self.hidden_norm(self.fc(states).float())
        context_positions = torch.arange(length, device=tokens.device)
        context_positions = context_positions.expand(batch, length)
        of_block = torch.arange(anchors.shape[1], device=tokens.device)
        of_block = of_block.repeat_interleave(n)
        before = context_positions[:, None] < anchors.repeat_interleave(n, 1)[..., None]
        own = (of_block[:, None] == of_block).expand(batch, -1, -1)
        visible = torch.cat([before, own], dim=-1)[:, None]
        for layer in self.layers:
            x = layer(x, positions, context, context_positions, visible)
        return self.norm(x).unflatten(1, (-1, n))

    def logits(self, hidden: torch.Tensor, previous: torch.Tensor) -> torch.Tensor:
        """Return the logits of drafts ([..., hidden_size] -> [..., draft_vocab_size]).

        Args:
            hidden: what `forward` gives.
            previous: [...], int64: the token before each.
        """
        bias = self.markov_head.markov_w2(self.markov_head.markov_w1(previous))
        return F.linear(hidden, self.lm_head) + bias

    def confidence(self, hidden: torch.Tensor, previous: torch.Tensor) -> torch.Tensor:
        """Return the log-odds of acceptance ([..., hidden_size] -> [...])."""
        embedded = self.markov_head.markov_w1(previous)
        features = torch.cat([hidden, embedded], dim=-1)
        return self.confidence_head.proj(features).squeeze(-1)

    def propose(
        self,
        tokens: torch.Tensor,
        states: torch.Tensor,
        anchors: torch.Tensor,
        to_target: torch.Tensor,
    ) -> torch.Tensor:
        """Draft greedily, as the engine does.

        Args:
            tokens: as in `forward`.
            states: as in `forward`.
            anchors: as in `forward`.
            to_target: [draft_vocab_size], int64: tokens of the target.

        Returns:
            [B, A, block_size], int64, in the target's vocabulary.
        """
        drafts = []
        with torch.inference_mode():
            hidden = self(tokens, states, anchors)
            previous = tokens.gather(1, anchors)
            for i in range(self.shape.block_size):
                best = self.logits(hidden[:, :, i], previous).argmax(dim=-1)
                previous = to_target[best]
                drafts.append(previous)
        return torch.stack(drafts, dim=-1)
