"""The trusted core: the only code that sees rows, and the accounting of what they cost."""
