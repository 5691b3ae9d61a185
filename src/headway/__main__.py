"""`python -m headway` is `headway`."""

import sys

from headway.cli.main import main

sys.exit(main())
