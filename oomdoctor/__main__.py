"""`python -m oomdoctor` is the same program as `oomdoctor`."""

from oomdoctor.cli import start

start()
