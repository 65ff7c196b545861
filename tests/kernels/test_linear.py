# SPDX-License-Identifier: Apache-2.0
"""The product in bfloat16 against torch's, to the bit."""

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from oracle import same_bits_or_nan
from torch import Tensor
from torch.nn.functional import linear

from vllm_kunlun import ops
from vllm_kunlun.step.linears import SUMS

# Rows and columns in tiles and beside them, deep enough to be cut into parts.
shapes = st.tuples(st.integers(1, 8), st.integers(1, 30), st.integers(1, 20))
seeds = st.integers(0, 2**20)
# None so small that products are subnormal, which are not exact.
scales = st.sampled_from([0.0, 1e-6, 1.0, 1e3, 1e18])


@pytest.fixture(scope="module", autouse=True)
def library() -> None:
    """Load the ops."""
    ops.load()


def numbers(shape: tuple[int, ...], seed: int) -> Tensor:
    """Return normally distributed numbers."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).bfloat16()


def in_order(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return the product with sums in the order that torch has on a CPU with AVX2."""
    products = x.float()[:, None, :] * weight.float()
    parts = products.unflatten(-1, (-1, SUMS))
    sums = torch.zeros_like(parts[..., 0, :])
    for i in range(parts.shape[-2]):
        sums = sums + parts[..., i, :]
    while sums.shape[-1] > 1:
        half = sums.shape[-1] // 2
        sums = sums[..., :half] + sums[..., half:]
    total = sums[..., 0]
    return (total if bias is None else total + bias.float()).bfloat16()


def ours(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return the op's product."""
    out = torch.full((*x.shape[:-1], weight.shape[0]), 7, dtype=torch.bfloat16)
    torch.ops.vllm_kunlun.linear(out, x, weight, bias)
    return out


def torch_has_this_order() -> bool:
    """Whether torch makes one product after the other here, with AVX2."""
    avx2 = torch.backends.cpu.get_cpu_capability() == "AVX2"
    return avx2 and not torch.ops.mkldnn._is_mkldnn_bf16_supported()


@given(shapes, seeds, scales, st.booleans())
@example((7, 25, 33), 0, 1.0, True)
@example((100, 13, 1), 1, 1.0, False)
@example((4, 12, 16), 2, 1e3, True)
def test_products(
    shape: tuple[int, int, int], seed: int, scale: float, with_bias: bool
) -> None:
    """Of any number of rows and columns, with a bias and without."""
    rows, columns, parts = shape
    x = numbers((rows, parts * SUMS), seed) * scale
    weight = numbers((columns, parts * SUMS), seed + 1)
    bias = numbers((columns,), seed + 2) if with_bias else None
    found = ours(x, weight, bias)
    assert torch.equal(found, in_order(x, weight, bias))
    if torch_has_this_order():
        assert torch.equal(found, linear(x, weight, bias))


@pytest.mark.parametrize("value", [float("inf"), -float("inf"), float("nan"), -0.0])
def test_special_numbers(value: float) -> None:
    """They come out as upstream's."""
    x, weight = numbers((5, 128), 0), numbers((30, 128), 1)
    x[3, 77] = value
    weight[17] = 0.0
    assert same_bits_or_nan(ours(x, weight), in_order(x, weight, None)).all()


def test_a_row_is_what_it_is_alone() -> None:
    """Whatever rows are beside it, and however many threads take part."""
    x, weight = numbers((2, 110, 640), 0), numbers((1500, 640), 1)
    together = ours(x, weight)
    for row in (0, 1, 50, 95, 96, 108, 109):
        assert torch.equal(ours(x[1, row], weight), together[1, row])
    assert not ours(x[:, :0], weight).numel()


def test_as_good_as_double() -> None:
    """All but a few in ten thousand are the nearest numbers to the exact product."""
    x, weight = numbers((40, 1536), 0), numbers((300, 1536), 1)
    exact = (x.double() @ weight.double().t()).bfloat16()
    assert (ours(x, weight) == exact).float().mean() > 0.999


def test_rules_for_custom_ops() -> None:
    """What is written is what the schema says."""
    x, weight, bias = numbers((3, 64), 0), numbers((5, 64), 1), numbers((5,), 2)
    op = torch.ops.vllm_kunlun.linear.default
    torch.library.opcheck(op, (x.new_empty(3, 5), x, weight, bias))


def test_bad_arguments() -> None:
    """Each is named with what was expected of it."""
    op = torch.ops.vllm_kunlun.linear
    x, weight = numbers((3, 64), 0), numbers((5, 64), 1)
    out, bias = x.new_empty(3, 5), numbers((5,), 2)
    with pytest.raises(ValueError, match=r"linear: weight .*64 columns.* 48"):
        op(out, x[:, :48].contiguous(), weight[:, :48].contiguous(), None)
    with pytest.raises(ValueError, match=r"linear: weight .*2 dimensions.* 1"):
        op(out, x, weight[0], None)
    with pytest.raises(ValueError, match=r"linear: x .*64 elements.* 128"):
        op(out, numbers((3, 128), 0), weight, None)
    with pytest.raises(ValueError, match=r"linear: x .*BFloat16.*Float"):
        op(out, x.float(), weight, bias)
    with pytest.raises(ValueError, match=r"linear: weight .*contiguous"):
        op(out, x, numbers((64, 5), 0).t(), bias)
    with pytest.raises(ValueError, match=r"linear: bias .* 5 elements.* 4"):
        op(out, x, weight, bias[:4].clone())
    with pytest.raises(ValueError, match=r"linear: out .*16"):
        op(x.new_empty(16), x, weight, bias)
