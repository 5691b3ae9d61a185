"""Runs the `headway` command for `python -m headway`."""

import sys

from headway.cli.main import main

sys.exit(main())
