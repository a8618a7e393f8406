"""Invoices, and their three renderers."""

from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Decimal

CENT = Decimal("0.01")


@dataclass(frozen=True)
class Line:
    name: str
    quantity: Decimal
    price: Decimal


@dataclass(frozen=True)
class Invoice:
    number: str
    lines: list[Line] = field(default_factory=list)
    discount_percent: Decimal = Decimal(0)
    tax_percent: Decimal = Decimal(19)


def render_text(invoice: Invoice) -> str:
    out = [f"Invoice {invoice.number}"]
    net = Decimal(0)
    for line in invoice.lines:
        amount = (line.quantity * line.price).quantize(CENT, ROUND_HALF_UP)
        net += amount
        out.append(f"{line.name:<20}{line.quantity:>8}{amount:>12}")
    net = net.quantize(CENT)
    discount = (net * invoice.discount_percent / 100).quantize(CENT, ROUND_HALF_UP)
    tax = ((net - discount) * invoice.tax_percent / 100).quantize(CENT, ROUND_HALF_UP)
    gross = net - discount + tax
    out.append(f"{'net':<28}{net:>12}")
    if discount:
        out.append(f"{'discount':<28}{-discount:>12}")
    out.append(f"{'tax':<28}{tax:>12}")
    out.append(f"{'gross':<28}{gross:>12}")
    return "\n".join(out) + "\n"


def render_markdown(invoice: Invoice) -> str:
    out = [f"## Invoice {invoice.number}", "", "| item | quantity | amount |", "|---|---:|---:|"]
    net = Decimal(0)
    for line in invoice.lines:
        amount = (line.quantity * line.price).quantize(CENT, ROUND_HALF_UP)
        net += amount
        out.append(f"| {line.name} | {line.quantity} | {amount} |")
    net = net.quantize(CENT)
    discount = (net * invoice.discount_percent / 100).quantize(CENT, ROUND_HALF_UP)
    tax = (net - discount) * invoice.tax_percent / 100
    gross = net - discount + tax
    out.append(f"| net | | {net} |")
    if discount:
        out.append(f"| discount | | {-discount} |")
    out.append(f"| tax | | {tax} |")
    out.append(f"| **gross** | | **{gross}** |")
    return "\n".join(out) + "\n"


def render_csv(invoice: Invoice) -> str:
    out = ["item,quantity,amount"]
    net = Decimal(0)
    for line in invoice.lines:
        amount = (line.quantity * line.price).quantize(CENT, ROUND_HALF_UP)
        net += amount
        out.append(f"{line.name},{line.quantity},{amount}")
    net = net.quantize(CENT)
    tax = (net * invoice.tax_percent / 100).quantize(CENT, ROUND_HALF_UP)
    discount = ((net + tax) * invoice.discount_percent / 100).quantize(CENT, ROUND_HALF_UP)
    gross = net + tax - discount
    out.append(f"net,,{net}")
    if discount:
        out.append(f"discount,,{-discount}")
    out.append(f"tax,,{tax}")
    out.append(f"gross,,{gross}")
    return "\n".join(out) + "\n"
