#!/bin/bash
set -e
cp /solution/ledger.py /app/ledger.py
