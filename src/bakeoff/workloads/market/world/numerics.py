"""Exponential, logarithm and the normal distribution in plain IEEE 754 arithmetic.

The C library's exp and log differ between machines in the last bit. These use only +, -, *, / and sqrt, which IEEE 754
rounds exactly, so a key draws the same world everywhere. They are also inlined, and loops over them vectorise, which a
call into a library prevents.
"""

from __future__ import annotations

import math
from typing import Any

from bakeoff.workloads.market.world.jit import as_bits, as_float, kernel

# ln 2 in two parts as in fdlibm (Sun Microsystems 1993, e_exp.c and e_log.c): the high part has trailing zero bits,
# so that n * high is exact for every exponent n (Cody and Waite's argument reduction).
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_bits: Any = as_bits
_float: Any = as_float


@kernel
def exp(x: float) -> float:
    """e^x within one unit in the last place for |x| < 700; 0 below -700, and e^700 above 700."""
    if x < -700.0:
        return 0.0
    x = min(x, 700.0)
    n = math.floor(x * 1.4426950408889634 + 0.5)  # x / ln 2, rounded
    scale: float = _float((n + 1023) << 52)  # 2^n: the biased exponent in its place
    return _series(x - n * _LN2_HIGH - n * _LN2_LOW) * scale


@kernel
def exp_near_0(x: float) -> float:
    """The same, faster for |x| < 0.25: no argument reduction."""
    if abs(x) >= 0.25:
        return exp(x)
    return _series(x)


@kernel
def _series(t: float) -> float:
    """The Taylor series of e^t up to t^11, for |t| <= ln(2) / 2.

    In Estrin's order: the three groups do not depend on each other, so the processor computes them side by side.
    """
    t2 = t * t
    low = (1.0 + t) + t2 * (0.5 + t * (1.0 / 6.0))
    middle = (1.0 / 24.0 + t * (1.0 / 120.0)) + t2 * (1.0 / 720.0 + t * (1.0 / 5040.0))
    high = (1.0 / 40320.0 + t * (1.0 / 362880.0)) + t2 * (1.0 / 3628800.0 + t * (1.0 / 39916800.0))
    t4 = t2 * t2
    return low + t4 * (middle + t4 * high)


@kernel
def log(x: float) -> float:
    """ln x of a positive normal number, within one unit in the last place. The polynomial is fdlibm's (e_log.c)."""
    bits: int = _bits(x)
    # The constant is the bits of sqrt(1/2): x = 2^k * rest with rest between sqrt(1/2) and sqrt(2).
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
    """ln(1 + e^x) to about 1e-16 absolutely. The exponent is never positive, so nothing overflows."""
    return max(x, 0.0) + log(1.0 + exp(-abs(x)))


@kernel
def one_minus_exp(x: float) -> float:
    """1 - e^-x for x >= 0. Near 0 the difference would cancel, so the series is summed instead."""
    if x < 0.03125:
        return x * (1.0 - x * (0.5 - x * (1.0 / 6.0 - x * (1.0 / 24.0 - x * (1.0 / 120.0 - x * (1.0 / 720.0))))))
    return 1.0 - exp(-x)


@kernel
def normal_cdf(x: float) -> float:
    """P(standard normal <= x) to about 1e-15.

    The rational approximation of Hart (Computer Approximations, 1968) as given by West (Better approximations to
    cumulative normal functions, Wilmott 2005).
    """
    u = abs(x)
    if u >= 7.0:
        return 0.0 if x < 0.0 else 1.0
    top = (((((3.52624965998911e-02 * u + 0.700383064443688) * u + 6.37396220353165) * u + 33.912866078383) * u
            + 112.079291497871) * u + 221.213596169931) * u + 220.206867912376  # fmt: skip
    low = ((((((8.83883476483184e-02 * u + 1.75566716318264) * u + 16.064177579207) * u + 86.7807322029461) * u
             + 296.564248779674) * u + 637.333633378831) * u + 793.826512519948) * u + 440.413735824752  # fmt: skip
    tail = exp(-0.5 * u * u) * top / low
    return tail if x < 0.0 else 1.0 - tail


# Standard normal deviates by inverting the distribution function: Wichura's PPND7 (Algorithm AS 241, Applied
# Statistics 1988), seven digits. The middle and the tails have different polynomials; `philox.normal_lanes` evaluates
# the first for all worlds at once and then redoes the few that fell into a tail.


@kernel
def normal_middle(q: float) -> float:
    """The deviate at probability 0.5 + q, for |q| <= 0.425."""
    r = 0.180625 - q * q
    return (
        q
        * (((59.109374720 * r + 159.29113202) * r + 50.434271938) * r + 3.3871327179)
        / (((67.187563600 * r + 78.757757664) * r + 17.895169469) * r + 1.0)
    )


@kernel
def normal_tail(q: float) -> float:
    """The deviate at probability 0.5 + q, for |q| > 0.425."""
    r = math.sqrt(-log(0.5 - abs(q)))
    if r <= 5.0:
        r -= 1.6
        z = (((0.17023821103 * r + 1.3067284816) * r + 2.7568153900) * r + 1.4234372777) / (
            (0.12021132975 * r + 0.73700164250) * r + 1.0
        )
    else:
        r -= 5.0
        z = (((0.017337203997 * r + 0.42868294337) * r + 3.0812263860) * r + 6.6579051150) / (
            (0.012258202635 * r + 0.24197894225) * r + 1.0
        )
    return -z if q < 0.0 else z
