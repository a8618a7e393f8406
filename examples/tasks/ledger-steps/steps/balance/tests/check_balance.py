from ledger_checks import score


def sums_are_exact(ledger):
    for amount in ("90071992547409.93", "0.07", "-90071992547409.9"):
        ledger("add", "ann", amount)
    return ledger("balance", "ann") == (0, "0.10\n")


def negative_amounts_count(ledger):
    ledger("add", "ann", "-0.07")
    return ledger("balance", "ann") == (0, "-0.07\n")


def names_are_sorted(ledger):
    for name, amount in (("zoe", "1"), ("bob", "-2.5"), ("zoe", "0.25")):
        assert ledger("add", name, amount)[0] == 0
    return ledger("balance") == (0, "bob -2.50\nzoe 1.25\n")


def nothing_is_zero(ledger):
    return ledger("balance", "nobody") == (0, "0.00\n") and ledger("balance") == (0, "")


def bad_amounts_are_refused(ledger):
    assert ledger("add", "ann", "5")[0] == 0
    before = ledger.entries()
    codes = [ledger("add", "ann", text)[0] for text in ("1.234", "ten", "", "1e2", "nan", "inf", "1,5")]
    return codes == [2] * 7 and ledger.entries() == before


def the_file_is_as_described(ledger):
    ledger("add", "ann", "12.5")
    return ledger.entries() == [{"name": "ann", "cents": 1250}]


score(sums_are_exact, negative_amounts_count, names_are_sorted, nothing_is_zero, bad_amounts_are_refused, the_file_is_as_described)  # fmt: skip
