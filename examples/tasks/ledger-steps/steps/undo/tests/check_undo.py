from ledger_checks import score


def filled(ledger):
    for name, amount in (("ann", "1"), ("bob", "2"), ("ann", "-0.5")):
        ledger("add", name, amount)


def the_newest_goes_first(ledger):
    filled(ledger)
    said = [ledger("undo") for _ in range(4)]
    return said == [(0, "took back ann -0.50\n"), (0, "took back bob 2.00\n"), (0, "took back ann 1.00\n"), (1, "")]


def undone_entries_stay_in_the_file_and_do_not_count(ledger):
    filled(ledger)
    ledger("undo")
    ledger("undo")
    kept = [{"name": "ann", "cents": 100}, {"name": "bob", "cents": 200, "undone": True}]
    kept.append({"name": "ann", "cents": -50, "undone": True})
    return ledger("balance") == (0, "ann 1.00\n") and [_plain(entry) for entry in ledger.entries()] == kept


def _plain(entry):
    """Without keys of the program's own, and without an `undone` that is false."""
    return {key: entry[key] for key in ("name", "cents", "undone") if entry.get(key) is not False and key in entry}


def redo_brings_back_the_last_undone(ledger):
    filled(ledger)
    ledger("undo")
    ledger("undo")
    first, second, third = ledger("redo"), ledger("redo"), ledger("redo")
    expected = ((0, "brought back bob 2.00\n"), (0, "brought back ann -0.50\n"), (1, ""))
    return (first, second, third) == expected and ledger("balance") == (0, "ann 0.50\nbob 2.00\n")


def an_add_ends_redoing(ledger):
    filled(ledger)
    ledger("undo")
    ledger("add", "cat", "3")
    return ledger("redo") == (1, "") and ledger("undo") == (0, "took back cat 3.00\n")


def redo_after_an_add_only_goes_back_to_it(ledger):
    filled(ledger)
    ledger("undo")
    ledger("add", "cat", "3")
    ledger("undo")
    return ledger("redo") == (0, "brought back cat 3.00\n") and ledger("redo") == (1, "")


def sums_are_still_exact(ledger):
    for amount in ("90071992547409.93", "0.07", "5"):
        ledger("add", "ann", amount)
    ledger("undo")
    return ledger("balance", "ann") == (0, "90071992547410.00\n")


score(the_newest_goes_first, undone_entries_stay_in_the_file_and_do_not_count, redo_brings_back_the_last_undone,
      an_add_ends_redoing, redo_after_an_add_only_goes_back_to_it, sums_are_still_exact)  # fmt: skip
