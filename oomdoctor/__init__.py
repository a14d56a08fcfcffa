"""oomdoctor: read the crash, add up the memory bill, find the cheapest change that fits."""

__version__ = "0.1.0"
