#!/bin/bash
cd /tests && python3 -B check_balance.py
