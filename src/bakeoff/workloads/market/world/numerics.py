"""Exponential, logarithm and the normal distribution in plain IEEE arithmetic.

The C library's versions differ between machines in the last bit; these do not, so a key draws the same world everywhere.
They are also inlined into the kernels, which calls into a library are not.
"""

from __future__ import annotations

import math
from typing import Any

from bakeoff.workloads.market.world.compiled import as_bits, as_float, kernel

_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_bits: Any = as_bits
_float: Any = as_float


@kernel
def exp(x: float) -> float:
    """Within one unit in the last place for |x| < 700; 0 below, and for larger x the value at 700."""
    if x < -700.0:
        return 0.0
    x = min(x, 700.0)
    n = math.floor(x * 1.4426950408889634 + 0.5)
    scale: float = _float((n + 1023) << 52)
    return _series(x - n * _LN2_HIGH - n * _LN2_LOW) * scale


@kernel
def exp_near_0(x: float) -> float:
    """The same for |x| < 0.25, quicker."""
    if abs(x) >= 0.25:
        return exp(x)
    return _series(x)


@kernel
def _series(t: float) -> float:
    """The exponential series up to the eleventh power, in an order that leaves few steps to wait for."""
    t2 = t * t
    low = (1.0 + t) + t2 * (0.5 + t * (1.0 / 6.0))
    middle = (1.0 / 24.0 + t * (1.0 / 120.0)) + t2 * (1.0 / 720.0 + t * (1.0 / 5040.0))
    high = (1.0 / 40320.0 + t * (1.0 / 362880.0)) + t2 * (1.0 / 3628800.0 + t * (1.0 / 39916800.0))
    t4 = t2 * t2
    return low + t4 * (middle + t4 * high)


@kernel
def log(x: float) -> float:
    """Of a positive normal number, within one unit in the last place."""
    bits: int = _bits(x)
    # The exponent is taken so that the rest lies between sqrt(1/2) and sqrt(2).
    k = (bits - 0x3FE6A09E667F3BCD) >> 52
    rest: float = _float(bits - (k << 52))
    f = rest - 1.0
    s = f / (2.0 + f)
    z = s * s
    w = z * z
    odd = w * (3.999999999940941908e-01 + w * (2.222219843214978396e-01 + w * 1.531383769920937332e-01))
    even = z * (
        6.666666666666735130e-01
        + w * (2.857142874366239149e-01 + w * (1.818357216161805012e-01 + w * 1.479819860511658591e-01))
    )
    half = 0.5 * f * f
    return k * _LN2_HIGH - ((half - (s * (half + odd + even) + k * _LN2_LOW)) - f)


@kernel
def softplus(x: float) -> float:
    """log(1 + e^x), to about 1e-16 absolutely."""
    return max(x, 0.0) + log(1.0 + exp(-abs(x)))


@kernel
def shrinkage(x: float) -> float:
    """1 - e^-x for x >= 0, without loss of digits near 0."""
    if x < 0.03125:
        return x * (1.0 - x * (0.5 - x * (1.0 / 6.0 - x * (1.0 / 24.0 - x * (1.0 / 120.0 - x * (1.0 / 720.0))))))
    return 1.0 - exp(-x)


@kernel
def normal_cdf(x: float) -> float:
    """P(standard normal <= x), to about 1e-15 (Hart 1968)."""
    u = abs(x)
    if u >= 7.0:
        return 0.0 if x < 0.0 else 1.0
    top = (((((3.52624965998911e-02 * u + 0.700383064443688) * u + 6.37396220353165) * u + 33.912866078383) * u
            + 112.079291497871) * u + 221.213596169931) * u + 220.206867912376  # fmt: skip
    low = ((((((8.83883476483184e-02 * u + 1.75566716318264) * u + 16.064177579207) * u + 86.7807322029461) * u
             + 296.564248779674) * u + 637.333633378831) * u + 793.826512519948) * u + 440.413735824752  # fmt: skip
    tail = exp(-0.5 * u * u) * top / low
    return tail if x < 0.0 else 1.0 - tail
