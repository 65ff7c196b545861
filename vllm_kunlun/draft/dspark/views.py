# SPDX-License-Identifier: Apache-2.0
"""What a drafting step's metadata is made of: part of ``KUNLUN_DRAFT_CACHE``."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from vllm.v1.worker.gpu.spec_decode.dflash.speculator import DFlashSpeculator


@dataclass(frozen=True)
class BatchViews:
    """Views of the drafter's buffers for a size of the batch.

    The buffers stay where they are, and every request has the same number of query
    rows, so that the size of the batch decides all of this.
    """

    query_start_loc_cpu: torch.Tensor
    query_start_loc: torch.Tensor
    seq_lens: torch.Tensor
    block_tables: dict[int, torch.Tensor]
    slot_mappings: dict[int, torch.Tensor]


class DraftViews:
    """Makes the views of a size of the batch once, and attention metadata from them."""

    def __init__(self, speculator: "DFlashSpeculator") -> None:
        """Start without any.

        Args:
            speculator: whose buffers are looked at; its attention is set.
        """
        self._speculator = speculator
        self._views: dict[tuple[int, int, int], BatchViews] = {}
        self._slots_by_layer: dict[int, dict[str, torch.Tensor]] = {}

    def slot_mappings(self, num_tokens: int) -> dict[str, torch.Tensor]:
        """Return the slots of the query rows, by the draft's layers."""
        found = self._slots_by_layer.get(num_tokens)
        if found is None:
            s = self._speculator
            found = {
                layer: s.block_tables.slot_mappings[gid, :num_tokens]
                for gid in s.draft_kv_cache_group_ids
                for group in s.attn_groups[gid]
                for layer in group.layer_names
            }
            self._slots_by_layer[num_tokens] = found
        return found

    def attn_metadata(
        self,
        num_reqs: int,
        num_reqs_padded: int,
        num_tokens: int,
        causal: bool | Mapping[int, bool],
    ) -> dict[str, Any]:
        """Return the draft's attention metadata, by its layers.

        Args:
            num_reqs: requests of the batch.
            num_reqs_padded: the same with padding.
            num_tokens: query rows, with padding.
            causal: whether a query row looks only at the rows before it, for all KV
                cache groups or by group.
        """
        from vllm.v1.attention.backend import CommonAttentionMetadata

        s = self._speculator
        key = (num_reqs, num_reqs_padded, num_tokens)
        views = self._views.get(key)
        if views is None:
            views = self._views[key] = self._make(*key)
        metadata: dict[str, Any] = {}
        for gid in s.draft_kv_cache_group_ids:
            common = CommonAttentionMetadata(
                query_start_loc=views.query_start_loc,
                query_start_loc_cpu=views.query_start_loc_cpu,
                seq_lens=views.seq_lens,
                max_seq_len=s.draft_max_seq_len,
                num_reqs=num_reqs_padded,
                num_actual_tokens=num_tokens,
                max_query_len=s.num_query_per_req,
                block_table_tensor=views.block_tables[gid],
                slot_mapping=views.slot_mappings[gid],
                causal=causal if isinstance(causal, bool) else causal.get(gid, True),
            )
            for group in s.attn_groups[gid]:
                built = group.get_metadata_builder(0).build(
                    common_prefix_len=0, common_attn_metadata=common
                )
                metadata.update(dict.fromkeys(group.layer_names, built))
        return metadata

    def _make(self, num_reqs: int, num_reqs_padded: int, num_tokens: int) -> BatchViews:
        s = self._speculator
        starts = s.arange[: num_reqs_padded + 1].clamp(max=num_reqs)
        tables, groups = s.block_tables, s.draft_kv_cache_group_ids
        return BatchViews(
            query_start_loc_cpu=starts * s.num_query_per_req,
            query_start_loc=s.input_buffers.query_start_loc[: num_reqs_padded + 1],
            seq_lens=s.input_buffers.seq_lens[:num_reqs_padded],
            block_tables={
                gid: tables.input_block_tables[gid][:num_reqs_padded] for gid in groups
            },
            slot_mappings={
                gid: tables.slot_mappings[gid, :num_tokens] for gid in groups
            },
        )
