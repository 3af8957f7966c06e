"""The trusted core: grids, encoding, queries, release, accounting and budgets."""
