# SPDX-License-Identifier: Apache-2.0
"""Attention on Kunlun: the vendor's kernels, and torch for what they do not do.

The way through torch has been run, on a CPU; the vendor's kernels never have.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from vllm.v1.attention.backend import (
    AttentionBackend,
    AttentionImpl,
    AttentionLayer,
    AttentionMetadata,
    AttentionMetadataBuilder,
    AttentionType,
    CommonAttentionMetadata,
    MultipleOf,
)

from vllm_kunlun.platform import vendor
from vllm_kunlun.platform.torch_attention import paged_attention, write_to_cache

_VENDOR_DTYPES = (torch.float16, torch.bfloat16)


class KunlunAttentionBackend(AttentionBackend):
    """Decoder attention over a paged KV cache, causal or not."""

    supported_dtypes: ClassVar[list[torch.dtype]] = [
        torch.float16,
        torch.bfloat16,
        torch.float32,
    ]
    forward_includes_kv_cache_update = False

    @staticmethod
    def get_name() -> str:
        """Return vLLM's name for all backends that are not its own."""
        return "CUSTOM"

    @staticmethod
    def get_supported_kernel_block_sizes() -> list[int | MultipleOf]:
        """Return what the vendor's plugin uses; torch takes any size."""
        return [MultipleOf(16)]

    @classmethod
    def supports_non_causal(cls) -> bool:
        """DSpark's draft tokens see each other."""
        return True

    @staticmethod
    def get_impl_cls() -> type["KunlunAttentionImpl"]:
        """Return what a layer runs."""
        return KunlunAttentionImpl

    @staticmethod
    def get_builder_cls() -> type["KunlunMetadataBuilder"]:
        """Return what prepares a step."""
        return KunlunMetadataBuilder

    @staticmethod
    def get_kv_cache_shape(
        num_blocks: int,
        block_size: int,
        num_kv_heads: int,
        head_size: int,
        cache_dtype_str: str = "auto",
    ) -> tuple[int, ...]:
        """Return the vendor's layout: all keys, then all values, head before token."""
        return 2, num_blocks, num_kv_heads, block_size, head_size


@dataclass
class KunlunMetadata(AttentionMetadata):
    """A batch, with its lengths on both sides: the vendor's kernels want both.

    Attributes:
        num_actual_tokens: without padding.
        num_decodes: leading requests that have one token in this step.
        query_start_loc: ``[requests + 1]`` int32, on the device and on the host.
        seq_lens: ``[requests]`` int32, on the device and on the host.
        kv_start_loc: ``[requests + 1]`` int32, sums of `seq_lens`.
        block_table: ``[requests, blocks]`` int32.
        causal: whether a token sees only what precedes it.
    """

    num_actual_tokens: int
    num_decodes: int
    query_start_loc: torch.Tensor
    query_start_loc_cpu: torch.Tensor
    seq_lens: torch.Tensor
    seq_lens_cpu: torch.Tensor
    kv_start_loc: torch.Tensor
    kv_start_loc_cpu: torch.Tensor
    block_table: torch.Tensor
    causal: bool


class KunlunMetadataBuilder(AttentionMetadataBuilder[KunlunMetadata]):
    """Prepares a step. Not for graphs: it reads lengths on the host."""

    def __init__(
        self, kv_cache_spec: Any, layer_names: list[str], vllm_config: Any, device: Any
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)

    def build(
        self,
        common_prefix_len: int,
        common_attn_metadata: CommonAttentionMetadata,
        fast_build: bool = False,
    ) -> KunlunMetadata:
        """Bring the lengths to the host, which waits for the device once.

        Raises:
            NotImplementedError: requests of one batch differ in being causal.
        """
        common = common_attn_metadata
        if not isinstance(common.causal, bool):
            raise NotImplementedError(
                "A batch with causal and other requests is not supported on Kunlun: "
                "choose another model."
            )
        requests = common.num_reqs
        starts = common.query_start_loc_cpu[: requests + 1].to(torch.int32)
        # The host's own numbers are an upper bound while drafts are verified.
        seq_lens_cpu = common.seq_lens[:requests].to("cpu", torch.int32)
        kv_starts = torch.zeros(requests + 1, dtype=torch.int32)
        torch.cumsum(seq_lens_cpu, 0, out=kv_starts[1:])
        longer = (starts[1:] - starts[:-1] != 1).nonzero()
        return KunlunMetadata(
            num_actual_tokens=common.num_actual_tokens,
            num_decodes=int(longer[0]) if len(longer) else requests,
            query_start_loc=common.query_start_loc[: requests + 1],
            query_start_loc_cpu=starts,
            seq_lens=common.seq_lens[:requests],
            seq_lens_cpu=seq_lens_cpu,
            kv_start_loc=kv_starts.to(common.seq_lens.device),
            kv_start_loc_cpu=kv_starts,
            block_table=common.block_table_tensor[:requests],
            causal=common.causal,
        )


class KunlunAttentionImpl(AttentionImpl[KunlunMetadata]):
    """What an attention layer runs."""

    def __init__(
        self,
        num_heads: int,
        head_size: int,
        scale: float,
        num_kv_heads: int | None = None,
        alibi_slopes: list[float] | None = None,
        sliding_window: int | None = None,
        kv_cache_dtype: str = "auto",
        logits_soft_cap: float | None = None,
        attn_type: str = AttentionType.DECODER,
        kv_sharing_target_layer_name: str | None = None,
        sinks: torch.Tensor | None = None,
    ) -> None:
        for name, value in (("ALiBi", alibi_slopes), ("sinks", sinks)):
            if value is not None:
                raise ValueError(
                    f"Attention with {name} is not supported on Kunlun: choose another "
                    "model."
                )
        self.num_heads = num_heads
        self.head_size = head_size
        self.scale = float(scale)
        self.num_kv_heads = num_kv_heads or num_heads
        self.sliding_window = sliding_window
        self.kv_cache_dtype = kv_cache_dtype
        self.logits_soft_cap = logits_soft_cap or None
        self.kv_sharing_target_layer_name = kv_sharing_target_layer_name
        # Where the vendor's window begins is not known for sure.
        self._plain = sliding_window is None and self.logits_soft_cap is None

    def do_kv_cache_update(
        self,
        layer: AttentionLayer,
        key: torch.Tensor,
        value: torch.Tensor,
        kv_cache: torch.Tensor,
        slot_mapping: torch.Tensor,
    ) -> None:
        """Write the step's keys and values into the cache.

        Args:
            layer: not used.
            key: ``[tokens, kv_heads, head_size]``.
            value: like `key`.
            kv_cache: see `KunlunAttentionBackend.get_kv_cache_shape`; written.
            slot_mapping: ``[tokens]``, where each token goes; -1 for padding.
        """
        tokens = min(len(slot_mapping), len(key))
        key, value, slots = key[:tokens], value[:tokens], slot_mapping[:tokens]
        write = vendor.find("reshape_and_cache_flash")
        if write is not None and key.dtype in _VENDOR_DTYPES:
            write(
                key.contiguous(),
                value.contiguous(),
                kv_cache[0],
                kv_cache[1],
                slots,
                BLHD_LAYOUT=False,
            )
        else:
            write_to_cache(key, kv_cache[0], slots)
            write_to_cache(value, kv_cache[1], slots)

    def forward(
        self,
        layer: AttentionLayer,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        kv_cache: torch.Tensor,
        attn_metadata: KunlunMetadata,
        output: torch.Tensor,
        output_scale: torch.Tensor | None = None,
        output_block_scale: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Attend to the cache, which holds this step's keys and values already.

        Args:
            layer: not used.
            query: ``[tokens, heads, head_size]``.
            key: not used; in the cache.
            value: not used; in the cache.
            kv_cache: see `KunlunAttentionBackend.get_kv_cache_shape`.
            attn_metadata: of the step; None while memory is profiled.
            output: like `query`; written.
            output_scale: not supported.
            output_block_scale: not supported.
        """
        if attn_metadata is None:
            return output.zero_()
        at = attn_metadata
        done = 0
        if self._plain and query.dtype in _VENDOR_DTYPES:
            done = self._decode(query, kv_cache, at, output)
            if self._prefill(query, kv_cache, at, output, done):
                return output
        paged_attention(
            query,
            kv_cache[0],
            kv_cache[1],
            at.block_table,
            at.query_start_loc_cpu.tolist(),
            at.seq_lens_cpu.tolist(),
            output,
            scale=self.scale,
            causal=at.causal,
            window=self.sliding_window,
            soft_cap=self.logits_soft_cap,
            first_request=done,
        )
        return output

    def _decode(
        self,
        query: torch.Tensor,
        kv_cache: torch.Tensor,
        at: KunlunMetadata,
        output: torch.Tensor,
    ) -> int:
        """Have the vendor's kernel do the leading decodes; return how many it did."""
        kernel = vendor.find("paged_attention")
        # It scales by the root of the head size and takes no other scale.
        if (
            kernel is None
            or not at.num_decodes
            or abs(self.scale * self.head_size**0.5 - 1) > 1e-6
        ):
            return 0
        n = at.num_decodes
        kernel(
            x=query[:n],
            k_cache=kv_cache[0],
            v_cache=kv_cache[1],
            block_tables=at.block_table[:n],
            context_lens_cpu=at.seq_lens_cpu[:n],
            context_lens_xpu=at.seq_lens[:n],
            is_context=False,
            is_causal=True,
            out=output[:n],
            vo_head_dim=self.head_size,
        )
        return n

    def _prefill(
        self,
        query: torch.Tensor,
        kv_cache: torch.Tensor,
        at: KunlunMetadata,
        output: torch.Tensor,
        done: int,
    ) -> bool:
        """Have the vendor's kernel do the requests from `done` on, if it can."""
        requests = len(at.seq_lens_cpu)
        if done == requests:
            return True
        kernel = vendor.find("prefill_attention")
        if kernel is None:
            return False
        first, last = int(at.query_start_loc_cpu[done]), at.num_actual_tokens
        kernel(
            q=query[first:last],
            k=kv_cache[0],
            v=kv_cache[1],
            out=output[first:last],
            is_causal=at.causal,
            is_prefix_cache=True,
            # Upon the root of the head size, which it divides by itself.
            alpha=self.scale * self.head_size**0.5,
            block_table=at.block_table[done:],
            context_qlen_lod_cpu=at.query_start_loc_cpu[done:] - first,
            context_qlen_lod_xpu=at.query_start_loc[done:] - first,
            context_kvlen_lod_cpu=at.kv_start_loc_cpu[done:]
            - at.kv_start_loc_cpu[done],
            context_kvlen_lod_xpu=at.kv_start_loc[done:] - at.kv_start_loc[done],
            alibi_slopes=None,
            softmax_lse=None,
        )
        return True
