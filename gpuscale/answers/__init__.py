"""Questions and their answers: a typed record in, a document of records, blocks and terms out.

No flags and no printing: `gpuscale.cli` and `gpuscale.api` ask, and this package answers.
"""
