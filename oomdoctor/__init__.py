"""oomdoctor: read the crash, add up the memory bill, find the cheapest change that fits."""

__version__ = "0.1.0"


def load_ipython_extension(shell: object) -> None:
    """`%load_ext oomdoctor` in a notebook; see `oomdoctor.notebook`."""
    from oomdoctor.notebook import load

    load(shell)
