"""Invoices and how they are shown."""
