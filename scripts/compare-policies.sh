#!/bin/sh -e
# Compare all scheduling policies, paired over 30 seeds, and print the verdicts: the figures of docs/schedsim.md.
#   scripts/compare-policies.sh [ROOT]        ROOT (default: bakeoff-runs) gets the results and policies/verdicts.txt
cd "$(dirname "$0")/.."
root=${1:-bakeoff-runs}
bakeoff=.venv/bin/bakeoff
"$bakeoff" run examples/policies.toml --root "$root" --yes

# Exit code 3 means that something is undecided, which is a valid result.
verdicts() { "$bakeoff" compare "$@" --root "$root" --verbose || [ $? -eq 3 ]; }
{
    verdicts policies
    for pair in "fifo_cheapest critical_path" "fifo_spill critical_path_spill" "fifo_cheapest dag_cheapest" "fifo_spill dag_escalation"; do
        set -- $pair
        verdicts "policies:$1" "policies:$2" | grep -E '^(Better|Worse|Equivalent|Undecided)'
    done
} | tee "$root/policies/verdicts.txt"
