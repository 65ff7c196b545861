# SPDX-License-Identifier: Apache-2.0
"""A layer's norms and activations against upstream's own code for them.

They are upstream's to the bit on a CPU with AVX2, where this was measured; by the code
of torch and SLEEF they are with AVX-512, too.
"""

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from oracle import same_bits_or_nan
from torch import Tensor
from torch.nn.functional import silu
from vllm import ir

from vllm_kunlun import ops

EPSILON = 1e-5
VECTOR = 16
"""Elements that torch takes at once. A shorter row, and what is left of one, it may
work out in another way, whose last place differs."""
DTYPES = (torch.float32, torch.bfloat16)

shapes = st.tuples(st.integers(1, 5), st.integers(1, 3), st.integers(1, 200))
seeds = st.integers(0, 2**20)
# From where squares are lost to where they overflow.
scales = st.sampled_from([0.0, 1e-30, 1e-3, 1.0, 30.0, 1e6, 1e25])


@pytest.fixture(scope="module", autouse=True)
def library() -> None:
    """Load the ops."""
    ops.load()


def numbers(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> Tensor:
    """Return normally distributed numbers."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).to(dtype)


def apart(ours: Tensor, theirs: Tensor) -> Tensor:
    """Return by how many of the dtype's numbers two results differ; 0 for two NaN."""
    integers = {torch.float32: torch.int32, torch.bfloat16: torch.int16}

    def place(x: Tensor) -> Tensor:
        bits = x.view(integers[x.dtype]).long()
        lowest = torch.iinfo(integers[x.dtype]).min
        return torch.where(bits < 0, lowest - bits, bits)

    distance = (place(ours) - place(theirs)).abs()
    return distance.masked_fill(same_bits_or_nan(ours, theirs), 0)


def assert_upstreams(ours: Tensor, theirs: Tensor, whole_vectors: bool = True) -> None:
    """Compare what torch makes of whole vectors with AVX2, and all else nearly."""
    if whole_vectors and torch.backends.cpu.get_cpu_capability() == "AVX2":
        assert same_bits_or_nan(ours, theirs).all()
    # In bfloat16 a number that is rounded the other way may be rounded once more.
    assert apart(ours, theirs).max() <= (8 if ours.dtype == torch.float32 else 2)


@pytest.mark.parametrize("dtype", DTYPES)
@given(shapes, seeds, scales, st.booleans(), st.booleans())
@example((2, 1, 64), 0, 1.0, True, True)
@example((3, 2, 1537), 1, 1.0, True, True)
@example((1, 1, 576), 2, 30.0, True, True)
@example((1, 1, 20000), 3, 1.0, False, True)
def test_rms_norm(
    dtype: torch.dtype,
    shape: tuple[int, int, int],
    seed: int,
    scale: float,
    with_residual: bool,
    with_weight: bool,
) -> None:
    """Sums are added up in torch's order."""
    x = numbers(shape, dtype, seed) * scale
    residual = numbers(shape, dtype, seed + 1) * scale if with_residual else None
    weight = numbers(shape[-1:], dtype, seed + 2) if with_weight else None
    summed: Tensor | None = None
    if residual is None:
        theirs = ir.ops.rms_norm.impls["native"].impl_fn(x, weight, EPSILON, None)
    else:
        theirs, summed = ir.ops.fused_add_rms_norm.impls["native"].impl_fn(
            x, residual, weight, EPSILON, None
        )

    ours = torch.full_like(x, 7)
    before = x.clone()
    kept = None if residual is None else residual.clone()
    torch.ops.vllm_kunlun.rms_norm(ours, x, residual, weight, EPSILON)
    assert torch.equal(x, before)
    if residual is not None:
        assert summed is not None
        assert same_bits_or_nan(residual, summed).all()
    assert_upstreams(ours, theirs, shape[-1] >= VECTOR)
    # In place it is the same to the bit.
    torch.ops.vllm_kunlun.rms_norm(x, x, kept, weight, EPSILON)
    assert same_bits_or_nan(x, ours).all()


@pytest.mark.parametrize("dtype", DTYPES)
@given(shapes, seeds, scales)
@example((1, 1, 1025), 0, 1.0)
@example((2, 1, 3008), 0, 30.0)
@example((5, 1, 1536), 1, 30.0)
def test_silu_and_mul(
    dtype: torch.dtype, shape: tuple[int, int, int], seed: int, scale: float
) -> None:
    """Exponentials are those of SLEEF, as in torch."""
    width = shape[-1]
    x = numbers((*shape[:-1], 2 * width), dtype, seed) * scale
    theirs = silu(x[..., :width]) * x[..., width:]
    ours = torch.full(shape, 7, dtype=dtype)
    torch.ops.vllm_kunlun.silu_and_mul(ours, x)
    if width % VECTOR == 0:
        assert_upstreams(ours, theirs)
    largest = x.float()[..., width:].abs().max()
    # Where exp(-x) leaves f32 soon, nothing is left of x but less than this.
    tiny = 1e-35 * largest
    near = apart(ours, theirs) <= (8 if dtype == torch.float32 else 2)
    assert (near | ((ours.float() - theirs.float()).abs() <= tiny)).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_most_are_the_same(dtype: torch.dtype) -> None:
    """In bfloat16 nearly all are upstream's to the bit, so that tokens are, too."""
    x, residual = numbers((64, 576), dtype, 0), numbers((64, 576), dtype, 1)
    weight = numbers((576,), dtype, 2)
    native = ir.ops.fused_add_rms_norm.impls["native"].impl_fn
    theirs, _ = native(x, residual, weight, EPSILON, None)
    torch.ops.vllm_kunlun.rms_norm(x, x, residual, weight, EPSILON)
    gate = numbers((64, 3072), dtype, 3)
    product = torch.empty(64, 1536, dtype=dtype)
    torch.ops.vllm_kunlun.silu_and_mul(product, gate)
    silus = silu(gate[:, :1536]) * gate[:, 1536:]
    for ours, upstream in ((x, theirs), (product, silus)):
        same = (ours == upstream).float().mean()
        assert same >= (0.5 if dtype == torch.float32 else 0.999)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("value", [float("inf"), -float("inf"), float("nan"), -0.0])
def test_special_numbers(dtype: torch.dtype, value: float) -> None:
    """They come out as upstream's."""
    x = numbers((3, 40), dtype, 0)
    x[1, 7] = value
    weight = numbers((40,), dtype, 1)
    theirs = ir.ops.rms_norm.impls["native"].impl_fn(x, weight, EPSILON, None)
    ours = torch.empty_like(x)
    torch.ops.vllm_kunlun.rms_norm(ours, x, None, weight, EPSILON)
    assert apart(ours, theirs).max() <= 8
    product = torch.empty(3, 20, dtype=dtype)
    torch.ops.vllm_kunlun.silu_and_mul(product, x)
    assert apart(product, silu(x[:, :20]) * x[:, 20:]).max() <= 8


@pytest.mark.parametrize("rows", [0, 1, 300])
def test_numbers_of_rows(rows: int) -> None:
    """None, one, and more than one thread takes: each row is what it is alone."""
    x = numbers((rows, 2048), torch.float32, 0)
    weight = numbers((2048,), torch.float32, 1)
    norms, products = torch.empty_like(x), x.new_empty(rows, 1024)
    torch.ops.vllm_kunlun.rms_norm(norms, x, None, weight, EPSILON)
    torch.ops.vllm_kunlun.silu_and_mul(products, x)
    for row in range(rows):
        norm, product = norms.new_empty(2048), products.new_empty(1024)
        torch.ops.vllm_kunlun.rms_norm(norm, x[row], None, weight, EPSILON)
        torch.ops.vllm_kunlun.silu_and_mul(product, x[row])
        assert torch.equal(norm, norms[row])
        assert torch.equal(product, products[row])


def test_rules_for_custom_ops() -> None:
    """What is written is what the schemas say."""
    x, residual = numbers((3, 8), torch.float32, 0), numbers((3, 8), torch.float32, 1)
    weight = numbers((8,), torch.float32, 2)
    norm = torch.ops.vllm_kunlun.rms_norm.default
    torch.library.opcheck(norm, (torch.empty_like(x), x, residual, weight, EPSILON))
    product = torch.ops.vllm_kunlun.silu_and_mul.default
    torch.library.opcheck(product, (x.new_empty(3, 4), x))


def test_bad_arguments() -> None:
    """Each is named with what was expected of it."""
    norm = torch.ops.vllm_kunlun.rms_norm
    product = torch.ops.vllm_kunlun.silu_and_mul
    x, weight = torch.ones(4, 6), torch.ones(6)
    with pytest.raises(ValueError, match=r"rms_norm: weight.* 5"):
        norm(x.clone(), x, None, torch.ones(5), EPSILON)
    with pytest.raises(ValueError, match=r"rms_norm: residual .*BFloat16"):
        norm(x.clone(), x, x.bfloat16(), weight, EPSILON)
    with pytest.raises(ValueError, match=r"rms_norm: x .*Half"):
        norm(x.half(), x.half(), None, weight.half(), EPSILON)
    with pytest.raises(ValueError, match=r"rms_norm: x .*contiguous"):
        norm(x.T.clone(), x.T, None, torch.ones(4), EPSILON)
    with pytest.raises(ValueError, match=r"silu_and_mul: x .*even"):
        product(torch.ones(4, 2), torch.ones(4, 5))
    with pytest.raises(ValueError, match=r"silu_and_mul: out .*12"):
        product(torch.ones(4, 2), x)
