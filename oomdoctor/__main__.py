"""`python -m oomdoctor` is the same program as `oomdoctor`."""

import sys

from oomdoctor.cli import main

sys.exit(main())
