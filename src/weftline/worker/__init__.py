"""Child processes that may die: one protocol for all of them.

In: a module to run. Out: JSON lines, last words, an exit code. `parent` starts, tells, hears and ends a child; `child`
is what runs inside it. Simplified: this machine only.

What shares parts of it alone, and why: `ui.process` lives in an event loop, and its worker forks a watcher that ends a
whole group; ranks of torch.distributed (`run.train.launch`) are forks of one child that has loaded torch, and answer by
files, as torchrun's would; detection and local grids are pools of multiprocessing with semaphores or pickled questions;
the checker is one call of `subprocess.run`, isolated from the package that it checks.
"""
