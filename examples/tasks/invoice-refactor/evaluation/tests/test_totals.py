import random
from decimal import ROUND_HALF_UP, Decimal

import pytest
from bakeoff_work import script

CENT = Decimal("0.01")
# In a process of the work. Numbers travel as text, which keeps all their digits.
ALL = """
from decimal import Decimal
from billing.invoice import Invoice, Line
from billing.totals import totals
result = []
for number, lines, discount, tax in invoices:
    found = totals(
        Invoice(number, [Line(name, Decimal(a), Decimal(b)) for name, a, b in lines], Decimal(discount), Decimal(tax))
    )
    result.append([str(found.net), str(found.discount), str(found.tax), str(found.gross)])
"""
SHAPE = """
import dataclasses
from decimal import Decimal
from billing.invoice import Invoice, Line
from billing.totals import Totals, totals
found = totals(Invoice("1"))
try:
    found.net = Decimal(1)
    refused = False
except dataclasses.FrozenInstanceError:
    refused = True
names = sorted(field.name for field in dataclasses.fields(Totals))
result = [isinstance(found, Totals), names, refused, str(Line("x", Decimal(3), Decimal("0.335")).amount)]
"""


def invoices():
    rng = random.Random(20)
    for number in range(200):
        lines = [
            (f"item {i}", Decimal(rng.randint(1, 4000)) / 1000, Decimal(rng.randint(1, 99999)) / 1000)
            for i in range(rng.randint(0, 6))
        ]
        discount = rng.choice([Decimal(0), Decimal("2.5"), Decimal(10), Decimal(100)])
        yield number, lines, discount, rng.choice([Decimal(0), Decimal(7), Decimal(19)])


def rounded(value):
    return value.quantize(CENT, ROUND_HALF_UP)


@pytest.fixture(scope="module")
def found():
    plain = [
        (str(number), [(name, str(a), str(b)) for name, a, b in lines], str(discount), str(tax))
        for number, lines, discount, tax in invoices()
    ]
    return script(ALL, invoices=plain)


@pytest.mark.parametrize("invoice", invoices(), ids=lambda invoice: str(invoice[0]))
def test_amounts_are_rounded_one_by_one(invoice, found):
    number, lines, discount_percent, tax_percent = invoice
    net = sum((rounded(quantity * price) for _, quantity, price in lines), Decimal("0.00"))
    discount = rounded(net * discount_percent / 100)
    tax = rounded((net - discount) * tax_percent / 100)
    assert found[number] == [str(value) for value in (net, discount, tax, net - discount + tax)]


def test_totals_are_a_frozen_dataclass():
    assert script(SHAPE)[:3] == [True, ["discount", "gross", "net", "tax"], True]


def test_a_line_knows_its_amount():
    assert script(SHAPE)[3] == "1.01"
