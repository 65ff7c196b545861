# SPDX-License-Identifier: Apache-2.0
"""What some models and setups keep per request or per token."""

import torch

from vllm_kunlun.bench.kernels.batch import MAX_LENGTH, Batch, spread, zeros
from vllm_kunlun.bench.kernels.case import Cell, Size, case


@case("worker.gpu.cp_utils", "_dcp_local_seq_lens_kernel", "some arithmetic, clamp")
def dcp_local_seq_lens(size: Size) -> Cell:
    """Build the lengths on the second rank of two."""
    b = Batch(size.requests)
    ranks, rank, interleave = 2, 1, 16
    seq_lens = b.seq_lens
    out = zeros(b.max_requests)

    def baseline() -> None:
        rounds = seq_lens // (ranks * interleave)
        rest = seq_lens % (ranks * interleave) - rank * interleave
        out[: b.requests] = rounds * interleave + rest.clamp(0, interleave)
        out[b.requests :] = 0

    arguments = {
        "out_ptr": out,
        "seq_lens_ptr": seq_lens,
        "dcp_size": ranks,
        "dcp_rank": rank,
        "cp_interleave": interleave,
        "num_reqs": b.requests,
        "max_num_reqs": b.max_requests,
    }
    return Cell((-(-b.max_requests // 128),), arguments, baseline, [out])


@case(
    "worker.gpu.mm.rope",
    "_prepare_rope_positions_kernel",
    "repeat_interleave to tokens, one gather of all dimensions, where",
)
def prepare_rope_positions(size: Size) -> Cell:
    """Build a step in which every other request is being prefilled."""
    dims = 3
    b = Batch(size.requests)
    positions = zeros(dims, b.max_tokens + 1, dtype=torch.int64)
    prefill = b.ints(b.max_requests, dims, MAX_LENGTH)
    delta = b.ints(b.max_requests, high=100)
    prefill_lens = torch.arange(b.max_requests, dtype=torch.int32) % 2 * MAX_LENGTH

    def baseline() -> None:
        request, place = spread(b.starts)
        rows = b.rows[request]
        at = b.computed[rows] + place
        known = prefill[rows, :, at.clamp(max=MAX_LENGTH - 1)].T
        decoded = at + delta[rows]
        prefills = at < prefill_lens[rows]
        positions[:, : int(b.starts[-1])] = torch.where(prefills, known, decoded)

    arguments = {
        "positions_ptr": positions,
        "positions_stride": positions.stride(0),
        "prefill_positions_ptr": prefill,
        "prefill_positions_stride0": prefill.stride(0),
        "prefill_positions_stride1": prefill.stride(1),
        "prefill_delta_ptr": delta,
        "idx_mapping_ptr": b.rows,
        "query_start_loc_ptr": b.starts,
        "prefill_lens_ptr": prefill_lens,
        "num_computed_tokens_ptr": b.computed,
        "NUM_DIMS": dims,
    }
    return Cell((b.requests,), arguments, baseline, [positions])


@case(
    "worker.gpu.model_states.mamba_hybrid",
    "_scatter_num_accepted_kernel",
    "a mask, clamp, one scatter",
)
def scatter_num_accepted(size: Size) -> Cell:
    """Build a step of which every 8th request is not this rank's."""
    b = Batch(size.requests)
    rows = b.rows.clone()
    rows[7::8] = -1
    num_sampled = (b.lengths - 1).int()
    accepted = zeros(b.max_requests)

    def baseline() -> None:
        ours = rows >= 0
        accepted[rows[ours]] = num_sampled[ours].clamp(min=1)

    arguments = {
        "idx_mapping_ptr": rows,
        "num_sampled_ptr": num_sampled,
        "num_accepted_ptr": accepted,
    }
    return Cell((b.requests,), arguments, baseline, [accepted])
