"""Exit codes, as README's table promises them."""

DONE = 0
INTERNAL = 1
BAD_INPUT = 2
NO_OOM = 3
LACKING = 4
NOT_FREE = 5
NOTHING_FITS = 10
INTERRUPTED = 130
