"""The clinic on a real GPU: full-width models, run cards that go to the bill and to the run alike.

`python -m benchmarks.clinic --device cuda --card-gib 24`; `--device cpu` runs the same with narrow models on the
clinic's counted card.
"""
