"""Benchmarks: each program answers one question, beside named peers, and writes one JSON file.

Run them from the root of a checkout, such as ``python -m benchmarks.env.speed --out docs/results/bench_env.json``. What
they share is in ``benchmarks/common``: contestants that take turns in interleaved rounds, recorded play, and the peers.
The tables of the guides are generated from docs/results by docs/scripts.
"""
