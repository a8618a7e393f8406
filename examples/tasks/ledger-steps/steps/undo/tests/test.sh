#!/bin/bash
cd /tests && python3 -B check_undo.py
