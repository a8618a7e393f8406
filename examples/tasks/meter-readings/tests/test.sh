#!/bin/bash
# Half of the reward for the table of the given readings, half for the program on readings that nobody has seen.
python3 -I /tests/check.py > /logs/verifier/reward.json
cat /logs/verifier/reward.json
