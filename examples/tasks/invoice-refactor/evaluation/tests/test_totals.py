import dataclasses
import random
from decimal import ROUND_HALF_UP, Decimal

import pytest
from billing.invoice import Invoice, Line
from billing.totals import Totals, totals

CENT = Decimal("0.01")


def invoices():
    rng = random.Random(20)
    for number in range(200):
        lines = [
            Line(f"item {i}", Decimal(rng.randint(1, 4000)) / 1000, Decimal(rng.randint(1, 99999)) / 1000)
            for i in range(rng.randint(0, 6))
        ]
        discount = rng.choice([Decimal(0), Decimal("2.5"), Decimal(10), Decimal(100)])
        yield Invoice(str(number), lines, discount, rng.choice([Decimal(0), Decimal(7), Decimal(19)]))


def rounded(value):
    return value.quantize(CENT, ROUND_HALF_UP)


@pytest.mark.parametrize("invoice", invoices(), ids=lambda invoice: invoice.number)
def test_amounts_are_rounded_one_by_one(invoice):
    net = sum((rounded(line.quantity * line.price) for line in invoice.lines), Decimal("0.00"))
    discount = rounded(net * invoice.discount_percent / 100)
    tax = rounded((net - discount) * invoice.tax_percent / 100)
    found = totals(invoice)
    assert (found.net, found.discount, found.tax, found.gross) == (net, discount, tax, net - discount + tax)
    assert all(getattr(found, name).as_tuple().exponent == -2 for name in ("net", "discount", "tax", "gross"))


def test_totals_are_a_frozen_dataclass():
    found = totals(Invoice("1"))
    assert isinstance(found, Totals)
    assert {field.name for field in dataclasses.fields(Totals)} == {"net", "discount", "tax", "gross"}
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.net = Decimal(1)


def test_a_line_knows_its_amount():
    assert Line("x", Decimal(3), Decimal("0.335")).amount == Decimal("1.01")
