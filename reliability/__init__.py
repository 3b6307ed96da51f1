"""How far weftline can be trusted, measured: fuzzing, determinism, agreement of solvers, kills, mutants.

In: fixed seeds. Out: reliability/results/*.json and docs/reliability.md, by `python -m reliability`. Simplified: these
are samples, not proofs; the page says how large each of them is.
"""
